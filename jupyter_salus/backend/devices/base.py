"""The device protocol: what the daemon asks of a device, and what a device says of itself.

Capabilities are asked, never assumed: what a device can't do, it says with the reason. "No data" is a value (None), with
the process gone or unreadable as the only causes; a device that itself fails raises `DeviceError`. All calls may block for
some milliseconds and are made from a worker thread, one at a time, except `alive`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do. `lacks` names each thing that it can't, with the reason, for `doctor` and refusals."""

    moves: bool
    side_by_side: bool
    memory_mode: str
    lacks: dict[str, str]


@dataclass(frozen=True, slots=True)
class Figures:
    """A device's totals in bytes. `foreign_bytes`: used by what isn't a session. Reserve is held back from sessions."""

    capacity_bytes: int
    foreign_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a session's processes hold on the device now: its own, and its children's on top. `pids`: all of them."""

    own_bytes: int
    children_bytes: int
    pids: tuple[int, ...]

    @property
    def resident_bytes(self) -> int:
        return self.own_bytes + self.children_bytes


class Device(Protocol):
    """One device of the backend. `id` is stable on this host, `name` is for people."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    def capabilities(self) -> Capabilities:
        """Asked once, at start."""
        ...

    def figures(self, held: Mapping[int, int]) -> Figures:
        """The totals now. `held`: what sessions hold by process, so that the rest can be told as foreign use."""
        ...

    def shown_bytes(self) -> int | None:
        """The total that sessions are to see; None: the device's own figure."""
        ...

    def free_bytes(self) -> int:
        """What is free of all that the device has, governed or not, for whoever takes it first."""
        ...

    def listed(self) -> Mapping[int, int]:
        """What each process holds, of those that the device itself tells; none where it tells of none."""
        ...

    def usage(self, pid: int, apart: Collection[int] = ()) -> Usage | None:
        """What the process and its children hold; None if it is gone or can't be read. `apart`: processes among its
        children that are sessions of their own."""
        ...

    def remains(self, pids: Collection[int]) -> Usage | None:
        """What is left of a session's processes after its main one ended; None if nothing is: its bytes are free."""
        ...

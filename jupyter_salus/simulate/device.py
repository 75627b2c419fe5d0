"""A virtual device: who works on it, who had it last, and when its link to host memory is free."""

from __future__ import annotations

from .guest import Guest


class Device:
    """One device of the virtual machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Guests that run right now, in the order in which they began.
        self.running: dict[str, Guest] = {}
        #: How much of the device's time that they want they get.
        self.device_part = 1.0
        #: Guests that were placed here and haven't finished.
        self.guests = 0
        self._link_free_at = 0.0
        self._last_holder: str | None = None
        self._last_holder_of: dict[str, str] = {}

    def hand_over(self, lane: str, guest: str) -> bool:
        """A guest gets a turn in a lane: whether somebody else had it before. A new lane continues what the device did."""
        last = self._last_holder_of.get(lane, self._last_holder)
        self._last_holder_of[lane] = self._last_holder = guest
        return last is not None and last != guest

    def move(self, now: float, seconds: float) -> float:
        """When a move that is asked for now ends; moves are made one after another."""
        self._link_free_at = max(now, self._link_free_at) + seconds
        return self._link_free_at

"""Which device a backend governs, by its setting and by what is there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import BadValue, DeviceError
from .base import Device
from .host import HostDevice

KINDS = ("auto", "cuda", "host")
_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Choice:
    """The devices to govern, and why these: a sentence for the log."""

    devices: tuple[Device, ...]
    why: str


def driver_found() -> bool:
    """Whether an NVIDIA driver is on this machine: its kernel module, or at least its management library."""
    if _DRIVER.exists():
        return True
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def choose(kind: str, capacity_bytes: int | None = None, driver: Callable[[], bool] = driver_found) -> Choice:
    """The devices for `auto`, `cuda` or `host`. Raises `DeviceError` for `cuda` where it can't be had, `BadValue`."""
    if kind == "host":
        return Choice((HostDevice(capacity_bytes),), "The host device was chosen: RAM and turns are governed")
    if kind == "cuda":
        if not driver():
            raise DeviceError(
                "cannot govern a GPU: no NVIDIA driver is on this machine; `--device host` governs RAM and turns"
            )
        raise DeviceError("cannot govern a GPU: this version governs the host device alone; choose `--device host`")
    if kind == "auto":
        found = (
            "a GPU is here, but this version governs the host device alone" if driver() else "no NVIDIA driver is here"
        )
        return Choice((HostDevice(capacity_bytes),), f"The host device was picked: {found}")
    raise BadValue(f"cannot govern a device of kind {kind!r}: {', '.join(KINDS)} are known")

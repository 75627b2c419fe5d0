"""Which devices a backend governs, by its settings and by what is there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import BadValue, DeviceError
from .base import Device
from .cuda import CudaDevice
from .host import HostDevice
from .nvml import CHECKPOINT_DRIVER, Nvml

KINDS = ("auto", "cuda", "host")
#: A device of less than this is nobody's: a kernel alone holds more.
LEAST_BYTES = 32 << 20
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


def choose(
    kind: str,
    capacity_bytes: int | None = None,
    reserve_bytes: int | None = None,
    driver: Callable[[], bool] = driver_found,
    library: Callable[[], Nvml] = Nvml,
) -> Choice:
    """The devices for `auto`, `cuda` or `host`. Raises `DeviceError` for `cuda` where it can't be had, `BadValue`.

    Capacity and reserve are each device's. `auto` takes the GPUs where there are some that can be governed.
    """
    if capacity_bytes is not None and capacity_bytes < LEAST_BYTES:
        raise BadValue(
            f"cannot govern a device with a capacity of {capacity_bytes} bytes: the least is {LEAST_BYTES} (32MiB)"
        )
    if kind == "host":
        return Choice((HostDevice(capacity_bytes),), "The host device was chosen: RAM and turns are governed")
    if kind == "cuda":
        return _gpus(capacity_bytes, reserve_bytes, driver, library)
    if kind == "auto":
        if not driver():
            return Choice((HostDevice(capacity_bytes),), "The host device was picked: no NVIDIA driver is here")
        try:
            return _gpus(capacity_bytes, reserve_bytes, driver, library)
        except DeviceError as error:
            return Choice((HostDevice(),), f"The host device was picked: {error.message}")
    raise BadValue(f"cannot govern a device of kind {kind!r}: {', '.join(KINDS)} are known")


def _gpus(
    capacity_bytes: int | None, reserve_bytes: int | None, driver: Callable[[], bool], library: Callable[[], Nvml]
) -> Choice:
    if not driver():
        raise DeviceError(
            "cannot govern a GPU: no NVIDIA driver is on this machine; `--device host` governs RAM and turns"
        )
    nvml = library()
    cards = nvml.cards()
    shareable = [card for card in cards if card.unshareable is None]
    if not cards:
        raise DeviceError("cannot govern a GPU: the driver finds none on this machine")
    if not shareable:
        raise DeviceError(f"cannot govern gpu:{cards[0].index} ({cards[0].name}): {cards[0].unshareable}")
    devices = tuple(CudaDevice(nvml, card, capacity_bytes, reserve_bytes) for card in shareable)
    why = f"{len(devices)} of {len(cards)} GPUs, driver {nvml.driver}"
    if nvml.driver_major < CHECKPOINT_DRIVER:
        why += f" (contexts can go out from driver {CHECKPOINT_DRIVER} on)"
    if mps_runs():
        why += "; MPS runs: its clients share one context, and one that fails ends them all"
    return Choice(devices, why)


def mps_runs(processes: Path = Path("/proc")) -> bool:
    """Whether the control daemon of MPS runs, whose clients are one process to the driver."""
    for entry in processes.glob("[0-9]*/comm"):
        try:
            if entry.read_text().startswith("nvidia-cuda-mps"):
                return True
        except OSError:
            continue  # it ended meanwhile
    return False

"""A framework for kernels in tests, of one module: tensors on a device, work on them, sums to compare.

It reaches the driver as real ones do (by name, with ctypes) and knows nothing of a guard. The driver is met at the first
tensor, not at the import. Tests put this folder on PYTHONPATH; it runs over the stand-in and over the real driver.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

MIB = 1 << 20
_OUT_OF_MEMORY = 2


class OutOfMemoryError(MemoryError):
    """What this framework raises where the device has no room, as they all do."""


class DriverError(RuntimeError):
    """A call of the driver failed; `code` is its number."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _Device:
    """The driver, a context, a stream and the kernels; made once, at the first use."""

    def __init__(self, number: int) -> None:
        path = Path(__file__).resolve().parents[2] / "native" / "programs" / "cuda.py"
        spec = importlib.util.spec_from_file_location("_tinyframe_cuda", path)
        assert spec and spec.loader
        self.cuda: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.cuda)
        try:
            self.context = self.cuda.start(number)
            self.kernels = self.cuda.Kernels()
            self.stream = self.cuda.stream()
        except self.cuda.CudaError as error:
            raise _translated(error) from None
        self._threads = threading.local()
        self._threads.entered = True

    def enter(self) -> None:
        """Makes the context current on a thread that wasn't here before."""
        if not getattr(self._threads, "entered", False):
            self.cuda.call("cuCtxSetCurrent", self.context)
            self._threads.entered = True


_device: _Device | None = None
_number = 0
_lock = threading.Lock()


def use(number: int) -> None:
    """The device of this process; to be said before the first tensor."""
    global _number
    _number = number


def _here() -> _Device:
    global _device
    with _lock:
        if _device is None:
            _device = _Device(_number)
    _device.enter()
    return _device


def _translated(error: Any) -> Exception:
    if error.code == _OUT_OF_MEMORY:
        return OutOfMemoryError(f"{error}: out of memory")
    return DriverError(str(error), error.code)


def _do(work: Any) -> Any:
    here = _here()
    try:
        return work(here)
    except here.cuda.CudaError as error:
        raise _translated(error) from None


class Tensor:
    """`mib` MiB on the device, each 64-bit word of it a different number that follows from `seed`."""

    def __init__(self, mib: float, seed: int = 1) -> None:
        self.bytes = int(mib * MIB)
        self.address = 0
        self.address = _do(lambda on: on.cuda.alloc(self.bytes))
        self.fill(seed)

    def fill(self, seed: int) -> Tensor:
        """Write it anew from `seed`."""
        words = self.bytes // 8

        def work(on: _Device) -> None:
            on.kernels.fill(self.address, 2 * words, seed & 0xFFFFFFFF, on.stream)
            # The first word of each MiB tells the pieces apart, so that swapped ones are seen.
            on.cuda.sync(on.stream)
            for piece in range(0, self.bytes, MIB):
                on.cuda.write(self.address + piece, (seed * 1_000_003 + piece).to_bytes(8, "little"))

        _do(work)
        return self

    def mix(self, rounds: int = 1) -> Tensor:
        """One step of work on every word: launched, not waited for."""
        _do(lambda on: on.kernels.mix(self.address, self.bytes // 8, rounds, on.stream))
        return self

    def add(self, other: Tensor) -> Tensor:
        """Add another of the same size, word by word; launched, not waited for."""
        _do(lambda on: on.kernels.add(self.address, other.address, min(self.bytes, other.bytes) // 4, on.stream))
        return self

    def digest(self) -> str:
        """A checksum of all its bytes; waits for the work before."""

        def work(on: _Device) -> str:
            on.cuda.sync(on.stream)
            total = hashlib.sha256()
            for at in range(0, self.bytes, 64 * MIB):
                total.update(on.cuda.read(self.address + at, min(64 * MIB, self.bytes - at)))
            return total.hexdigest()[:16]

        return str(_do(work))

    def free(self) -> None:
        """Give the memory back."""
        address, self.address = self.address, 0
        if address and not sys.is_finalizing():
            _do(lambda on: on.cuda.free(address))

    def __del__(self) -> None:
        if self.address:
            self.free()


def spin(seconds: float) -> None:
    """A kernel that takes that long; launched, not waited for."""
    _do(lambda on: on.kernels.spin(seconds, on.stream))


_holds: list[Any] = []


def hold(path: str) -> None:
    """Work that isn't done before there is a file at `path`; launched, not waited for."""

    def until_there(_: Any) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)

    def work(on: _Device) -> None:
        _holds.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(until_there))
        on.cuda.call("cuLaunchHostFunc", on.stream, _holds[-1], None)

    _do(work)


def synchronize() -> None:
    """Wait until all launched work is done."""
    _do(lambda on: on.cuda.sync(on.stream))


def train(steps: int, mib: float = 8, seconds: float = 0.002, scratch_mib: float = 0, progress: Any = None) -> str:
    """`steps` iterations of about `seconds` on the device each, over `mib` of model; `scratch_mib` made and freed in each.

    The checksum of the model afterwards, which depends on nothing but the arguments.
    """
    model, seen = Tensor(mib, 7), Tensor(mib, 3)
    for step in range(steps):
        scratch = Tensor(scratch_mib, step) if scratch_mib else None
        model.add(seen).mix(1 + step % 3)
        spin(seconds)
        synchronize()
        if scratch is not None:
            scratch.free()
        if progress is not None:
            progress(step)
    return model.digest()


def wait(seconds: float) -> None:
    """Host work: nothing on the device."""
    time.sleep(seconds)


def memory() -> tuple:
    """Free and total bytes, as the process is told."""
    return tuple(_do(lambda on: on.cuda.memory()))


def guard_state() -> dict:
    """What the guard in this process says of itself; an empty one where there is none."""
    face: Any = ctypes.CDLL(None)
    if not hasattr(face, "salus_guard_state"):
        return {}
    return dict(_here().cuda.guard_state())


def cuda() -> ModuleType:
    """The driver's calls underneath, for tests that need one by name."""
    return _here().cuda

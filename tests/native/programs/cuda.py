"""The driver's interface for the programs of the tests, by ctypes: errors are exceptions, arguments are plain numbers."""

from __future__ import annotations

import ctypes as c
import hashlib
import os
from pathlib import Path

lib = c.CDLL("libcuda.so.1")
PTX = (Path(__file__).parent / "kernels.ptx").read_bytes() + b"\0"
u64, size_t, pointer = c.c_uint64, c.c_size_t, c.c_void_p


class CudaError(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} says {code}")
        self.code = code


class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]


class Properties(c.Structure):
    _fields_ = [
        ("type", c.c_int),
        ("handle_types", c.c_int),
        ("location", Location),
        ("metadata", c.c_void_p),
        ("flags", c.c_ubyte * 8),
    ]


class Access(c.Structure):
    _fields_ = [("location", Location), ("flags", c.c_int)]


def result(name: str, *arguments: object) -> int:
    """What the driver answers; numbers are passed as 64 bits."""
    return int(getattr(lib, name)(*(u64(a) if isinstance(a, int) else a for a in arguments)))


def call(name: str, *arguments: object) -> None:
    code = result(name, *arguments)
    if code:
        raise CudaError(name, code)


def got(name: str, *arguments: object, kind: type = u64, last: bool = False) -> int:
    """The number that a call writes through its first (or last) argument."""
    out = kind()
    call(name, *((*arguments, c.byref(out)) if last else (c.byref(out), *arguments)))
    return int(out.value or 0)


def start(device: int = 0, primary: bool = True) -> int:
    call("cuInit", 0)
    if primary:
        context = got("cuDevicePrimaryCtxRetain", device, kind=pointer)
        call("cuCtxSetCurrent", context)
        return context
    return got("cuCtxCreate_v2", 0, device, kind=pointer)


def alloc(size: int) -> int:
    return got("cuMemAlloc_v2", size)


def free(address: int) -> None:
    call("cuMemFree_v2", address)


def write(address: int, data: bytes) -> None:
    call("cuMemcpyHtoD_v2", address, c.c_char_p(data), len(data))


def read(address: int, size: int) -> bytes:
    out = c.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", out, address, size)
    return out.raw


def words(address: int, count: int) -> list[int]:
    """The distinct 32-bit values that lie there."""
    return sorted(set(memoryview(read(address, 4 * count)).cast("I").tolist()))


def digest(address: int, size: int) -> str:
    return hashlib.sha256(read(address, size)).hexdigest()


def random_bytes(size: int) -> bytes:
    return os.urandom(size)


def memory() -> tuple[int, int]:
    free_bytes, total = size_t(), size_t()
    call("cuMemGetInfo_v2", c.byref(free_bytes), c.byref(total))
    return free_bytes.value, total.value


def address_range(address: int) -> tuple[int, int]:
    base, size = u64(), size_t()
    call("cuMemGetAddressRange_v2", c.byref(base), c.byref(size), address)
    return base.value, size.value


def attribute(address: int, which: int, kind: type = u64) -> int:
    return got("cuPointerGetAttribute", which, address, kind=kind)


def properties(device: int = 0) -> Properties:
    return Properties(type=1, location=Location(1, device))


def create(size: int, device: int = 0) -> int:
    return got("cuMemCreate", size, c.byref(properties(device)), 0)


def reserve(size: int) -> int:
    return got("cuMemAddressReserve", size, 0, 0, 0)


def map_at(address: int, size: int, handle: int) -> None:
    call("cuMemMap", address, size, 0, handle, 0)


def set_access(address: int, size: int, device: int = 0, flags: int = 3) -> None:
    call("cuMemSetAccess", address, size, c.byref(Access(Location(1, device), flags)), 1)


def get_access(address: int, device: int = 0) -> int:
    return got("cuMemGetAccess", c.byref(Location(1, device)), address)


def mapped(size: int, device: int = 0) -> tuple[int, int]:
    """An address and a handle, mapped there and accessible."""
    handle, address = create(size, device), reserve(size)
    map_at(address, size, handle)
    set_access(address, size, device)
    return address, handle


def stream(flags: int = 1) -> int:
    return got("cuStreamCreate", flags, kind=pointer)


def event() -> int:
    return got("cuEventCreate", 2, kind=pointer)


def sync(which: int | None = None) -> None:
    if which is None:
        call("cuCtxSynchronize")
    else:
        call("cuStreamSynchronize", which)


class Kernels:
    """The kernels of `kernels.cu`, in the current context."""

    def __init__(self) -> None:
        self.module = got("cuModuleLoadData", c.c_char_p(PTX), kind=pointer)

    def launch(self, name: str, on: int, *arguments: object) -> None:
        function = got("cuModuleGetFunction", self.module, c.c_char_p(name.encode()), kind=pointer)
        values = [a if isinstance(a, c._SimpleCData) else u64(a) for a in arguments]  # type: ignore[arg-type]
        cells = (c.c_void_p * len(values))(*(c.cast(c.byref(v), c.c_void_p) for v in values))
        call("cuLaunchKernel", function, 32, 1, 1, 256, 1, 1, 0, on, cells, None)

    def fill(self, address: int, count: int, value: int, on: int = 0) -> None:
        self.launch("fill32", on, address, count, c.c_uint32(value))

    def add(self, to: int, from_: int, count: int, on: int = 0) -> None:
        self.launch("add32", on, to, from_, count)

    def mix(self, address: int, count: int, rounds: int, on: int = 0) -> None:
        self.launch("mix64", on, address, count, c.c_uint32(rounds))

    def spin(self, seconds: float, on: int = 0) -> None:
        self.launch("spin", on, int(seconds * 1e9))


def begin_capture(on: int, mode: int = 0) -> None:
    call("cuStreamBeginCapture_v2", on, c.c_int(mode))


def end_capture(on: int) -> int:
    return got("cuStreamEndCapture", on, kind=pointer, last=True)


def instantiate(graph: int) -> int:
    return got("cuGraphInstantiateWithFlags", graph, 0, kind=pointer)


def exchange_mode(mode: int) -> int:
    cell = c.c_int(mode)
    call("cuThreadExchangeStreamCaptureMode", c.byref(cell))
    return cell.value


def guard_state() -> dict[str, object]:
    import json

    out = c.create_string_buffer(4096)
    face = c.CDLL(None)
    face.salus_guard_state.restype = size_t
    n = face.salus_guard_state(out, size_t(len(out)))
    state: dict[str, object] = json.loads(out.raw[:n])
    return state

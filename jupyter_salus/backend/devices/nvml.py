"""NVIDIA's management library: which GPUs are here, how full they are, and who fills them.

Asked through `nvidia-ml-py`, which loads `libnvidia-ml.so.1` when the first question comes. No CUDA context is ever made
for it, so the asking process holds no memory of any GPU. All that the library refuses is a `DeviceError` that says what
can be done about it. Calls take some tenths of a millisecond and may come from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import DeviceError

#: From this version on a process's context can go out as well (the driver's process checkpoints with GPU pairs).
CHECKPOINT_DRIVER = 570


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as it was found. `shareable`: None, or why processes can't share it now."""

    index: int
    name: str
    uuid: str
    total_bytes: int
    unshareable: str | None


@dataclass(frozen=True, slots=True)
class Filling:
    """How full a GPU is: what is used of it, by whomever, and what each listed process uses.

    `processes` has those that the library shows with a figure. In a container it shows none, or by numbers of another
    pid namespace, so that a process isn't in it says nothing.
    """

    total_bytes: int
    used_bytes: int
    processes: dict[int, int]


class Nvml:
    """The library, initialised. Raises `DeviceError` if it can't be used; `close` lets it go."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DeviceError(
                "cannot govern a GPU: the Python package nvidia-ml-py isn't installed beside jupyter_salus"
            ) from error
        self._nvml: Any = pynvml
        self._ask("find the driver", pynvml.nvmlInit)
        self.driver = _text(self._ask("read the driver's version", pynvml.nvmlSystemGetDriverVersion))

    @property
    def driver_major(self) -> int:
        """The first number of the driver's version; 0 where it has none."""
        first = self.driver.split(".", 1)[0]
        return int(first) if first.isdigit() else 0

    def close(self) -> None:
        """No more questions."""
        self._nvml.nvmlShutdown()

    def cards(self) -> list[Card]:
        """All GPUs of this machine, by index."""
        count = self._ask("count the GPUs", self._nvml.nvmlDeviceGetCount)
        return [self._card(index) for index in range(count)]

    def filling(self, index: int) -> Filling:
        """How full a GPU is now."""
        name = f"gpu:{index}"
        handle = self._handle(index)
        total, used = self._memory(name, handle)
        listed = self._ask(f"list the processes on {name}", self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        processes: dict[int, int] = {}
        for one in listed:
            if one.usedGpuMemory is not None:
                processes[int(one.pid)] = processes.get(int(one.pid), 0) + int(one.usedGpuMemory)
        return Filling(total, used, processes)

    def _card(self, index: int) -> Card:
        name = f"gpu:{index}"
        handle = self._handle(index)
        title = _text(self._ask(f"read the name of {name}", self._nvml.nvmlDeviceGetName, handle))
        uuid = _text(self._ask(f"read the UUID of {name}", self._nvml.nvmlDeviceGetUUID, handle))
        total, _ = self._memory(name, handle)
        return Card(index, title, uuid, total, self._unshareable(handle))

    def _unshareable(self, handle: Any) -> str | None:
        nvml = self._nvml
        mode = self._if_known(nvml.nvmlDeviceGetComputeMode, handle)
        if mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
            return "its compute mode lets one process in at a time (`nvidia-smi -c DEFAULT` lets several in)"
        if mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
            return "its compute mode lets no process in (`nvidia-smi -c DEFAULT` does)"
        mig = self._if_known(nvml.nvmlDeviceGetMigMode, handle)
        if mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            return "it is divided into MIG instances, which are devices of their own"
        return None

    def _memory(self, name: str, handle: Any) -> tuple[int, int]:
        """Total and used bytes: without what the driver keeps for itself, where the driver tells that apart."""
        nvml = self._nvml
        newer = self._if_known(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        if newer is not None:
            return int(newer.total) - int(newer.reserved), int(newer.used)
        plain = self._ask(f"read the memory of {name}", nvml.nvmlDeviceGetMemoryInfo, handle)
        return int(plain.total), int(plain.used)

    def _handle(self, index: int) -> Any:
        return self._ask(f"reach gpu:{index}", self._nvml.nvmlDeviceGetHandleByIndex, index)

    def _if_known(self, question: Any, *arguments: Any) -> Any:
        """The answer; None where this driver or card has none to that question."""
        nvml = self._nvml
        try:
            return question(*arguments)
        except nvml.NVMLError as error:
            nothing = (
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            )
            if error.value in nothing:
                return None
            raise self._failed("ask a GPU for its settings", error) from error

    def _ask(self, what: str, question: Any, *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError as error:
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: Any) -> DeviceError:
        nvml = self._nvml
        advice = {
            nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "the driver's management library, libnvidia-ml.so.1, isn't on this machine",
            nvml.NVML_ERROR_DRIVER_NOT_LOADED: "no NVIDIA driver runs on this machine",
            nvml.NVML_ERROR_NO_PERMISSION: "this user may not; the files /dev/nvidia* say who may",
            nvml.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus; only a reboot or a reset brings it back",
            nvml.NVML_ERROR_RESET_REQUIRED: "the GPU needs a reset",
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was updated and the machine not restarted since",
        }.get(error.value, f"the driver says {error}")
        return DeviceError(f"cannot {what}: {advice}", {"nvml": int(error.value)})


def _text(value: str | bytes) -> str:
    """Older versions of the package answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

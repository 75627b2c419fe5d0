"""What `doctor` finds out about the machine: processes, GPUs by the driver's own answers, and whether the guard loads."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..backend.devices.choice import driver_found
from ..backend.devices.nvml import Nvml
from ..errors import DeviceError
from ..manager import preload
from .limits import on_this_machine
from .units import size


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what about, how it stands (`ok`, `note`, `problem`), and what it means for the person."""

    about: str
    level: str
    text: str


def machine() -> Iterator[Finding]:
    """All that concerns the machine and not the installation."""
    yield _processes()
    yield from _gpus()
    yield _guard()


def _processes() -> Finding:
    """What the daemon's leases and the host device's figures stand on."""
    if not hasattr(os, "pidfd_open"):
        return Finding("processes", "note", "no pidfd here: a kernel's end is seen by its socket alone")
    try:
        handle = os.pidfd_open(os.getpid())
    except OSError as error:
        return Finding("processes", "note", f"no pidfd ({error.strerror}): a kernel's end is seen by its socket alone")
    select.select([handle], [], [], 0)
    os.close(handle)
    if not Path("/proc/self/status").exists():
        return Finding("processes", "problem", "cannot read /proc: the memory of kernels can't be measured")
    return Finding("processes", "ok", "the end of a kernel and its memory can be seen")


def _gpus() -> Iterator[Finding]:
    if not driver_found():
        text = "no NVIDIA driver: the host device governs RAM and compute turns, and moves nothing"
        yield Finding("GPU", "note", text)
        return
    try:
        nvml = Nvml()
    except DeviceError as error:
        yield Finding("GPU", "problem", f"{error.message}; the host device is governed instead")
        return
    try:
        yield _driver(nvml)
        for card in nvml.cards():
            filling = nvml.filling(card.index)
            text = f"{card.name}, {size(filling.used_bytes)} used of {size(card.total_bytes)}"
            if card.unshareable is None:
                yield Finding(f"gpu:{card.index}", "ok", text)
            else:
                yield Finding(f"gpu:{card.index}", "problem", f"{text}; it can't be shared now: {card.unshareable}")
        for limit in on_this_machine():
            yield Finding(f"limit {limit.name}", "note", f"{limit.changes}; {limit.then}")
    except DeviceError as error:
        yield Finding("GPU", "problem", error.message)
    finally:
        nvml.close()


def _driver(nvml: Nvml) -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = (
        f"driver {nvml.driver}; up to half of this machine's {size(total)} of RAM takes what is moved out, the contexts of idle "
        "kernels stay on the GPU"
    )
    return Finding("GPU", "ok", text)


def _guard() -> Finding:
    """Whether kernels get the guard, tried with this interpreter as it is tried with each kernel's."""
    if sys.platform != "linux":
        return Finding("guard", "note", "it exists for Linux alone")
    if not preload.LIBRARY.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        why = "not built, though there is a compiler" if compiler else "not built: there was no C compiler"
        return Finding("guard", "note", f"{why}; without it sessions on a GPU are plain: turns at boundaries only")
    if preload.driver_here(os.environ):
        reason = preload.preload([sys.executable, "-m", "ipykernel_launcher"], os.environ).reason
        if reason is not None:
            return Finding("guard", "note", f"{reason}; sessions on a GPU are plain: turns at boundaries only")
        return Finding("guard", "ok", f"kernels of {sys.executable} start with it")
    done = subprocess.run(
        [sys.executable, "-c", "pass"],
        env={**os.environ, "LD_PRELOAD": str(preload.LIBRARY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0 or "ld.so" in done.stderr:
        return Finding("guard", "note", f"built, and this interpreter can't load it: {done.stderr.strip()[-200:]}")
    return Finding("guard", "ok", "built, and it loads; without a driver nothing needs it here")

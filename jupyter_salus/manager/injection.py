"""How the guest gets into a kernel: which door its command line leaves open, and what goes into argv and environment.

Three doors. *extension*: argv starts ipykernel, so the boot directory goes to the front of PYTHONPATH and ipykernel loads
one IPython extension from there; the user's own extensions and `exec_lines` stay. *offer*: a Python kernel behind a wrapper
script, or a Python that ignores its environment (`-I`, `-E`): the running kernel is asked to load it (`offer`). *closed*:
anything else; the kernel is started as it is, and shown as not managed with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

#: Holds nothing but the boot module, so that nothing else of this package can be imported by way of PYTHONPATH.
BOOT_DIRECTORY = str(Path(__file__).parent.parent / "guest" / "boot")
BOOT_MODULE = "_jupyter_salus_boot"
EXTENSION_ARGUMENT = f"--ext={BOOT_MODULE}"

_MODULES = ("ipykernel_launcher", "ipykernel", "ipykernel.kernelapp", "ipykernel.__main__")
#: A cluster of Python's options without values, such as `-Isu`.
_CLUSTER = re.compile(r"-[bBdEiIOPqsSuvx]+m?")


@dataclass(frozen=True)
class Door:
    """What a kernel's command line allows; `reason` says why it is closed, or not an extension."""

    kind: Literal["extension", "offer", "closed"]
    reason: str | None = None


def door_of(command: Sequence[str], language: str, launched_here: bool = True) -> Door:
    """The door of a kernel with this command line. `launched_here`: its process is a child of ours on this host."""
    if not launched_here:
        return Door("closed", "its provisioner starts it elsewhere, where this host's backend can't be reached")
    at = _module_at(command)
    if at is not None:
        if any(_CLUSTER.fullmatch(option) and set(option) & {"I", "E"} for option in command[1:at]):
            return Door("offer", "its Python ignores the environment (-I or -E)")
        return Door("extension")
    if language.lower().startswith("python"):
        return Door("offer", "its kernelspec doesn't start ipykernel by itself")
    return Door("closed", f"it isn't ipykernel but a kernel for {language or 'an unnamed language'}")


def injected(command: Sequence[str]) -> list[str]:
    """The command line with the guest's extension, once; for a kernel whose door is *extension*."""
    return list(command) if EXTENSION_ARGUMENT in command else [*command, EXTENSION_ARGUMENT]


def prepend_boot_directory(environment: MutableMapping[str, str]) -> None:
    """Put the boot directory in front of PYTHONPATH, once."""
    rest = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part and part != BOOT_DIRECTORY]
    environment["PYTHONPATH"] = os.pathsep.join([BOOT_DIRECTORY, *rest])


def variables(
    socket: str, session: str, token: str, incarnation: int, kernel_id: str, name: str, path: str | None
) -> Mapping[str, str]:
    """What the guest finds in its environment. The token is good for one hello, and the guest removes it."""
    found = {
        "JUPYTER_SALUS_SOCKET": socket,
        "JUPYTER_SALUS_SESSION": session,
        "JUPYTER_SALUS_TOKEN": token,
        "JUPYTER_SALUS_INCARNATION": str(incarnation),
        "JUPYTER_SALUS_KERNEL_ID": kernel_id,
        "JUPYTER_SALUS_NAME": name,
    }
    if path:
        found["JUPYTER_SALUS_PATH"] = path
    return found


def variables_of_guard(socket: str, session: str) -> Mapping[str, str]:
    """What the guard finds in the environment of a kernel that no guest can be put into."""
    return {"JUPYTER_SALUS_SOCKET": socket, "JUPYTER_SALUS_SESSION": session}


def place(environment: MutableMapping[str, str], device: Mapping[str, Any]) -> None:
    """Have the kernel see the GPU that the backend put it on, where there are several and its user chose none."""
    if device.get("among", 1) > 1 and device.get("uuid") and "CUDA_VISIBLE_DEVICES" not in environment:
        environment["CUDA_VISIBLE_DEVICES"] = str(device["uuid"])


def _module_at(command: Sequence[str]) -> int | None:
    """The index of the option or file by which ipykernel is started, or None."""
    for at, (option, value) in enumerate(zip(command, [*command[1:], ""], strict=True)):
        if (option == "-m" or (_CLUSTER.fullmatch(option) and option.endswith("m"))) and value in _MODULES:
            return at + 1
        if os.path.basename(option) == "ipykernel_launcher.py":
            return at
    return None

"""Whether the guard is preloaded into a kernel, and the environment that this takes.

Only where a driver is on the host, and only after the kernel's own interpreter was seen to load the library: it is started
once with it (cached by path and time of both). Where that can't be, the session is plain, and the reason is shown. What
the user preloads is kept, after ours. The presets keep frameworks from taking the whole device and from holding locks while
they wait; what the user has set in any way stays as it is.

Children of the kernel inherit all of this, and the socket's address; never the token.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: `off`, or another build of the guard; in the server's environment or a kernelspec's.
SETTING = "JUPYTER_SALUS_GUARD"
LIBRARY = Path(__file__).parent.parent / "native" / "libsalus_guard.so"
DRIVER = "libcuda.so.1"

_PRELOAD = "LD_PRELOAD"
#: What the loader lists for every program; what it lists beside it, and where.
_SYSTEM_PRELOAD = "/etc/ld.so.preload"
_LINKER_CACHE = "/etc/ld.so.cache"
_LIBRARY_PLACES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
)
#: A library that answers for the driver, as some that divide GPUs do, has this name in its table.
_STANDS_BEFORE = b"\0cuMemAlloc_v2\0"
#: What interpreters may take to start once, in seconds.
_PATIENCE_S = 20.0
#: `release_lock_on_cudamalloc` came with PyTorch 2.1; older ones end with an error at a word that they don't know.
_ASK_PYTHON = (
    "import importlib.metadata as m\ntry: print('torch', m.version('torch'))\nexcept Exception: print('torch none')\n"
)
_MACHINES = {"x86_64": 62, "aarch64": 183}


@dataclass(frozen=True)
class Preload:
    """What to put into a kernel's environment. `reason`: why the guard isn't there although a GPU may be; else None."""

    variables: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None

    @property
    def guarded(self) -> bool:
        """Whether the guard will be in the kernel."""
        return _PRELOAD in self.variables


@dataclass(frozen=True)
class _Seen:
    """What came of starting an interpreter with the library. `torch`: the version of PyTorch there, if any."""

    reason: str | None
    torch: tuple[int, ...] | None = None


_seen: dict[tuple[object, ...], _Seen] = {}


def preload(command: Sequence[str], environment: Mapping[str, str], allowed: bool = True) -> Preload:
    """What a kernel with this command line and environment gets. Takes some 50 ms the first time for an interpreter.

    Called in a thread by whoever starts kernels; raises nothing but what a broken file system does.
    """
    setting = environment.get(SETTING, "")
    if sys.platform != "linux" or not driver_here(environment):
        return Preload()
    if not allowed or setting.lower() in ("off", "0", "no"):
        return Preload(reason="the guard is switched off")
    library = Path(setting) if os.path.isabs(setting) else LIBRARY
    if not library.exists():
        return Preload(
            reason="the guard isn't built: this installation found no C compiler and carries no built library"
        )
    if not os.access(library, os.R_OK):
        return Preload(reason=f"the guard can't be read: {library}")
    others = [one for one in re.split(r"[\s:]+", environment.get(_PRELOAD, "")) if one and one != str(library)]
    before = _who_stands_before(others)
    if before is not None:
        return Preload(
            reason=f"{before} is preloaded and stands before the driver itself: two such can't be told apart"
        )
    path = _without_gaps(library)
    kept = [one for one in others if one != path]
    interpreter = _which(command[0] if command else "", environment)
    if interpreter is None:
        return Preload(reason=f"its interpreter isn't found: {command[0] if command else 'no command'}")
    seen = _try(interpreter, path, library, environment)
    if seen.reason is not None:
        return Preload(reason=seen.reason)
    return Preload({_PRELOAD: ":".join([path, *kept]), **_presets(environment, seen.torch)})


def driver_here(environment: Mapping[str, str]) -> bool:
    """Whether programs with this environment find a driver by its name. Looks at files, loads nothing."""
    places = [one for one in environment.get("LD_LIBRARY_PATH", "").split(":") if one]
    if any(os.path.exists(os.path.join(place, DRIVER)) for place in (*places, *_LIBRARY_PLACES)):
        return True
    try:
        return DRIVER.encode() in Path(_LINKER_CACHE).read_bytes()
    except OSError:
        return False


def _presets(environment: Mapping[str, str], torch: tuple[int, ...] | None) -> dict[str, str]:
    wanted = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    # Either name is read by newer versions: a user's own setting under one must not meet ours under the other.
    if (torch is None or torch >= (2, 1)) and "PYTORCH_ALLOC_CONF" not in environment:
        wanted["PYTORCH_CUDA_ALLOC_CONF"] = "release_lock_on_cudamalloc:True"
    return {name: value for name, value in wanted.items() if name not in environment}


def _who_stands_before(preloaded: Sequence[str]) -> str | None:
    """Another preloaded library that answers for the driver, or None."""
    try:
        system = re.split(r"[\s:]+", Path(_SYSTEM_PRELOAD).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        system = []
    for one in (*preloaded, *system):
        try:
            if one and os.path.isabs(one) and _STANDS_BEFORE in Path(one).read_bytes():
                return one
        except OSError:
            continue  # the loader says the same and goes on without it
    return None


# ---- the interpreter ---------------------------------------------------------------------------------------------------


def _which(program: str, environment: Mapping[str, str]) -> str | None:
    return shutil.which(program, path=environment.get("PATH", os.defpath)) if program else None


def _try(interpreter: str, path: str, library: Path, environment: Mapping[str, str]) -> _Seen:
    key = (interpreter, _time(interpreter), str(library), _time(library), environment.get("LD_LIBRARY_PATH"))
    if key not in _seen:
        _seen[key] = _start_once(interpreter, path, environment)
    return _seen[key]


def _time(path: str | Path) -> int:
    return os.stat(path).st_mtime_ns


def _start_once(interpreter: str, path: str, environment: Mapping[str, str]) -> _Seen:
    """Start it with the library: a Python runs a line, of anything else the loader lists what it would load."""
    binary = _binary_of(interpreter, environment)
    reason = _unfit(binary)
    if reason is not None:
        return _Seen(reason)
    python = re.match(r"(python|pypy)[0-9.]*$", os.path.basename(interpreter)) is not None
    env = {**environment, _PRELOAD: path}
    command = [interpreter, "-c", _ASK_PYTHON] if python else [binary]
    if not python:
        env.update(LD_TRACE_LOADED_OBJECTS="1", LD_BIND_NOW="1", LD_WARN="yes")
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Seen(f"{interpreter} doesn't start with the guard: {error}")
    refused = "cannot be preloaded" in done.stderr or (not python and path not in done.stdout)
    if refused or done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return _Seen(f"{interpreter} doesn't load the guard: {said}")
    version = re.search(r"^torch (\d+)\.(\d+)", done.stdout, re.MULTILINE)
    return _Seen(None, tuple(map(int, version.groups())) if version else None)


def _binary_of(interpreter: str, environment: Mapping[str, str]) -> str:
    """The program that runs in the end: a script's is named in its first line."""
    at = interpreter
    for _ in range(4):
        with open(at, "rb") as file:
            first = file.readline(256)
        if not first.startswith(b"#!"):
            break
        words = os.fsdecode(first[2:]).split()
        named = words[1] if len(words) > 1 and os.path.basename(words[0]) == "env" else words[0] if words else ""
        found = _which(named, environment)
        if found is None:
            break
        at = found
    return at


def _unfit(binary: str) -> str | None:
    """Why no library can be preloaded into this file, told from its head; None if one can."""
    with open(binary, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            return f"{binary} isn't a program of this system"
        if head[4] != 2:
            return f"{binary} is a 32-bit program: the guard is for 64 bits"
        (machine,) = struct.unpack_from("<H", head, 18)
        if machine != _MACHINES.get(os.uname().machine, machine):
            return f"{binary} is a program for another kind of machine"
        (table,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        file.seek(table)
        rows = file.read(size * count)
    kinds = [struct.unpack_from("<I", rows, at)[0] for at in range(0, len(rows) - 3, size)] if size else []
    return None if 3 in kinds else f"{binary} is statically linked: nothing can be preloaded into it"


# ---- paths that the loader can't read ------------------------------------------------------------------------------------


def _without_gaps(library: Path) -> str:
    """The library's path, or that of a link to it where the path has what the loader takes for something else."""
    path = str(library.absolute())
    if not re.search(r"[\s:$]", path):
        return path
    name = f"jupyter-salus-guard-{os.getuid()}-{hashlib.sha256(path.encode()).hexdigest()[:16]}"
    for base in (os.environ.get("JUPYTER_SALUS_RUN_DIR") or "/tmp", tempfile.gettempdir()):
        link = Path(base) / f"{name}.so"
        if re.search(r"[\s:$]", str(link)):
            continue
        try:
            link.symlink_to(path)
        except FileExistsError:
            pass  # of an earlier start: used if it is ours and leads to the same place
        except OSError:
            continue
        if link.lstat().st_uid == os.getuid() and os.path.realpath(link) == os.path.realpath(path):
            return str(link)
    return path

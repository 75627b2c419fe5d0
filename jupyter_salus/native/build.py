"""Builds the guard, and the stand-in driver for its tests, with the machine's C compiler and nothing else.

Called by the package's build and by the tests. A machine without a compiler gets no guard and a reason: sessions are
plain there. What was built stands under a name of its sources' hash, so that it's built once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
GUARD = "libsalus_guard.so"
STANDIN = "libcuda.so.1"

#: Every warning is an error: what a newer compiler finds is looked at, not shipped.
WARNINGS = ("-Wall", "-Wextra", "-Werror")
FLAGS = ("-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-fno-plt", *WARNINGS)
LINK = ("-shared", "-Wl,--no-undefined", "-Wl,-z,now", "-Wl,-z,relro")
#: The stand-in calls its own entries directly, as the driver does, whatever is preloaded before it.
STANDIN_LINK = ("-Wl,-Bsymbolic", f"-Wl,-soname,{STANDIN}")
#: The stand-in for the library that shows devices to a backend; over the same devices.
STANDIN_NVML = "libnvidia-ml.so.1"
STANDIN_NVML_LINK = (f"-Wl,-soname,{STANDIN_NVML}",)


def compiler() -> list[str] | None:
    """The C compiler's command: `CC` if it is set, else `cc` or `gcc`. None if there is none."""
    configured = shlex.split(os.environ.get("CC", ""))
    if configured:
        return configured if shutil.which(configured[0]) else None
    for name in ("cc", "gcc"):
        if shutil.which(name):
            return [name]
    return None


def build(target_dir: str | os.PathLike[str], report: Callable[[str], None] = lambda text: None) -> Path | None:
    """Builds `libsalus_guard.so` into `target_dir`. None, with the reason given to `report`, where that isn't possible."""
    if sys.platform != "linux":
        report(f"cannot build the guard on {sys.platform}: it is written for Linux")
        return None
    return _compile(_sources("guard"), Path(target_dir) / GUARD, (), report)


def build_standin(target_dir: str | os.PathLike[str], report: Callable[[str], None] = lambda text: None) -> Path | None:
    """Builds the stand-in driver, and the NVML beside it, into `target_dir`, for tests alone.

    With that directory in `LD_LIBRARY_PATH` programs find both by the names of the real ones.
    """
    nvml = [*_sources("standin/nvml"), HERE / "standin" / "shared.c"]
    if _compile(nvml, Path(target_dir) / STANDIN_NVML, STANDIN_NVML_LINK, report) is None:
        return None
    return _compile(_sources("standin"), Path(target_dir) / STANDIN, STANDIN_LINK, report)


def cached(
    root: str | os.PathLike[str] | None = None, report: Callable[[str], None] = lambda text: None
) -> Path | None:
    """A directory outside of the source tree that holds the guard and `standin/` (driver and NVML) of these very sources.

    For tests: with its `standin` in `LD_LIBRARY_PATH` a machine has a GPU.
    """
    base = Path(root or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-salus-native"
    final = base / source_hash()
    if final.is_dir():
        return final
    base.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="building-", dir=base))
    try:
        (fresh / "standin").mkdir()
        if build(fresh, report) is None or build_standin(fresh / "standin", report) is None:
            return None
        try:
            fresh.rename(final)
        except OSError:
            if not final.is_dir():  # else another process built the same
                raise
        return final
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def source_hash() -> str:
    """Of all C sources, the flags and the compiler's name."""
    digest = hashlib.sha256(repr((FLAGS, LINK, STANDIN_LINK, STANDIN_NVML_LINK, compiler())).encode())
    for path in sorted(HERE.rglob("*")):
        if path.suffix in (".c", ".h", ".def"):
            digest.update(str(path.relative_to(HERE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


def glibc_needed(library: str | os.PathLike[str]) -> tuple[int, int]:
    """The newest version of the C library that a built library asks for: it runs there and on anything newer."""
    names = _needed_versions(Path(library).read_bytes())
    found = [
        match.groups() for match in (re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name) for name in names) if match
    ]
    return max((int(major), int(minor)) for major, minor in found)


def _sources(part: str) -> list[Path]:
    return sorted((HERE / part).glob("*.c"))


def _compile(sources: Sequence[Path], target: Path, link: Sequence[str], report: Callable[[str], None]) -> Path | None:
    command = compiler()
    if command is None:
        report(f"cannot build {target.name}: no C compiler found (looked for CC, cc, gcc)")
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=target.name, dir=target.parent)
    os.close(handle)
    arguments = [*command, *FLAGS, *LINK, *link, "-o", partial, *map(str, sources)]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            report(f"cannot build {target.name}: {shlex.join(command)} says: {done.stderr.strip()}")
            return None
        os.chmod(partial, 0o755)
        os.replace(partial, target)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return target


def _needed_versions(data: bytes) -> list[str]:
    """Names in the ELF section of needed versions (64 bits, little endian: the only machines the guard is for)."""
    verneed, strings_kind = 0x6FFFFFFE, 3
    (table,), (entry_size, count) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(count)]
    names: list[str] = []
    for _, kind, _, _, offset, _, link, rows, _, _ in sections:
        if kind != verneed or sections[link][1] != strings_kind:
            continue
        strings = sections[link][4]
        for _ in range(rows):
            _, auxiliaries, _, first, following = struct.unpack_from("<HHIII", data, offset)
            at = offset + first
            for _ in range(auxiliaries):
                name, step = struct.unpack_from("<II", data, at + 8)
                end = data.index(b"\0", strings + name)
                names.append(data[strings + name : end].decode())
                at += step
            offset += following
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the guard into a directory.")
    parser.add_argument("target", nargs="?", default=str(HERE), help="default: beside this file")
    parser.add_argument("--standin", action="store_true", help="build the stand-in driver of the tests instead")
    options = parser.parse_args()

    def report(text: str) -> None:
        print(text, file=sys.stderr)

    built = (build_standin if options.standin else build)(options.target, report)
    if built is None:
        return 1
    print(built)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

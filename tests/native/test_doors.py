"""The doors: every way by which programs reach the driver, and nothing else, leads through the guard."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_salus.native import build
from jupyter_salus.protocol.version import VERSION
from tests.native.backend import until
from tests.native.conftest import Compile
from tests.native.world import PROGRAMS, Child, World

NATIVE = Path(build.__file__).parent
TABLE = (NATIVE / "guard" / "symbols.def").read_text()
ROW = re.compile(r"^(GATED|ANSWERED|ROOM|FIXES|HARMLESS)\((\w+)", re.MULTILINE)
CUDA_HEADER = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include" / "cuda.h"


def headers() -> Path:
    found = (
        CUDA_HEADER if CUDA_HEADER.exists() else next(iter(Path("/usr/local").glob("cuda-13.*/include/cuda.h")), None)
    )
    if found is None:
        pytest.skip("no CUDA toolkit on this machine to compare with")
    return found


def test_each_symbol_of_the_driver_is_in_exactly_one_class() -> None:
    listed = (Path(__file__).parent / "cuda-13.0-symbols.txt").read_text().split()
    classed = [name for _, name in ROW.findall(TABLE)]
    assert sorted(classed) == sorted(set(classed))
    assert set(listed) - set(classed) == set()


def test_each_function_of_the_toolkits_header_is_classed() -> None:
    text = subprocess.run(
        ["cc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", str(headers())], capture_output=True, text=True, check=True
    ).stdout
    names = set(re.findall(r"CUresult\s+(cu[A-Z]\w+)\s*\(", text))
    assert len(names) > 400
    assert names - {name for _, name in ROW.findall(TABLE)} == set()


def test_layouts_and_numbers_are_the_toolkits(compiled: Compile, short_tmp: Path) -> None:
    own = (NATIVE / "driver.h").read_text()
    numbers = re.findall(r"\b(CU[A-Z_0-9]+) = (\d+)", own)
    renamed = {
        "CU_MEM_ACCESS_NONE": "CU_MEM_ACCESS_FLAGS_PROT_NONE",
        "CU_MEM_ACCESS_READ": "CU_MEM_ACCESS_FLAGS_PROT_READ",
    }
    renamed["CU_MEM_ACCESS_READWRITE"] = "CU_MEM_ACCESS_FLAGS_PROT_READWRITE"
    lines = [f'#include "{headers()}"', "#include <stddef.h>"]
    lines += [f'_Static_assert({renamed.get(name, name)} == {value}, "{name}");' for name, value in numbers]
    for layout, size in (
        ("CUmemAllocationProp", 32),
        ("CUmemAccessDesc", 12),
        ("CUipcMemHandle", 64),
        ("CUmemLocation", 8),
    ):
        lines.append(f'_Static_assert(sizeof({layout}) == {size}, "{layout}");')
    lines.append('_Static_assert(offsetof(CUmemAllocationProp, win32HandleMetaData) == 16, "properties");')
    lines.append("int main(void) { return 0; }")
    source = short_tmp / "layouts.c"
    source.write_text("\n".join(lines))
    compiled("layouts", [source])


def test_every_symbol_that_is_not_harmless_is_exported(built: Path) -> None:
    code = (
        "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]);"
        "print([n for n in sys.stdin.read().split() if not hasattr(lib, n)])"
    )
    names = "\n".join(name for kind, name in ROW.findall(TABLE) if kind != "HARMLESS")
    library = str(built / "libsalus_guard.so")
    done = subprocess.run(
        [sys.executable, "-c", code, library], input=names, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_guard_tells_the_packages_version(built: Path) -> None:
    library = ctypes.CDLL(str(built / "libsalus_guard.so"))
    library.salus_guard_version.restype = ctypes.c_char_p
    assert library.salus_guard_version().decode() == VERSION


def test_only_the_c_library_is_needed(built: Path) -> None:
    text = subprocess.run(["ldd", str(built / "libsalus_guard.so")], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^\s*(\S+?)\.so", text, re.MULTILINE)) <= {
        "linux-vdso",
        "libc",
        "/lib64/ld-linux-x86-64",
        "libpthread",
    }


def test_the_version_of_the_c_library_that_a_build_needs_can_be_told(built: Path) -> None:
    assert (2, 2) < build.glibc_needed(built / "libsalus_guard.so") < (3, 0)


FIND = """
def find(name):
    out = pointer()
    call('cuGetProcAddress_v2', c.c_char_p(name), c.byref(out), c.c_int(13000), 0, None)
    return out.value
"""


def owner(child: Child, address: str) -> str:
    """The file in which an address of the child lies."""
    value = child.do(f"c.cast({address}, c.c_void_p).value")
    for line in Path(f"/proc/{child.pid}/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= value < end:
            return line.split()[-1]
    return ""


def test_both_ways_of_asking_for_an_entry_lead_to_the_guard(world: World) -> None:
    child = world.child()
    child.do("call('cuInit', 0)")
    for name in ("cuMemAlloc_v2", "cuLaunchKernel", "cuGetProcAddress_v2"):
        assert owner(child, f"lib.{name}").endswith("libsalus_guard.so")
    assert owner(child, "lib.cuDeviceGetCount").endswith("libcuda.so.1")
    child.do(FIND)
    assert owner(child, "find(b'cuMemAlloc')").endswith("libsalus_guard.so")
    assert owner(child, "find(b'cuGetProcAddress')").endswith("libsalus_guard.so")
    assert owner(child, "find(b'cuDeviceGetCount')").endswith("libcuda.so.1")


def test_a_program_that_is_linked_to_the_driver_is_guarded_by_our_exported_symbols(
    world: World, compiled: Compile
) -> None:
    program = compiled("linked", [PROGRAMS / "worker.c"], "-O0", f"-L{world.built / 'standin'}", "-l:libcuda.so.1")
    backend = world.backend()
    environment = {**world.environment, "JUPYTER_SALUS_SOCKET": str(world.socket)}
    environment["LD_PRELOAD"] = str(world.built / "libsalus_guard.so")
    child = Child(environment, [str(program)])
    world.children.append(child)
    guard = backend.guard()
    guard.wait("touched")
    for move in range(1, 7, 2):
        guard.drain()
        guard.evict(move)
        guard.restore(move + 1)
        guard.easy = True
        guard.open()
        until(lambda: guard.heard[-1]["kind"] in ("memory", "touched", "blocks_back"), "more work")
    child.stop()
    assert child.process.returncode == 0


def test_an_entry_that_no_table_knows_makes_the_process_unmovable_and_says_so(world: World) -> None:
    backend = world.backend()
    child = world.child()
    child.do("context = start(); a = alloc(4 << 20); lib.cuStandinOnly")
    guard = backend.guard()
    guard.wait("memory", reason="an entry of the driver that this version doesn't know")
    guard.drain()
    guard.say("evict_blocks", move=1)
    assert guard.wait("move_failed", move=1)["code"] == "fixed"


@pytest.mark.parametrize("level", ["-O2", "-O0"])
@pytest.mark.parametrize("order", ["alone", "before", "after"])
def test_the_next_symbol_is_still_the_next_after_its_caller(
    world: World, compiled: Compile, level: str, order: str
) -> None:
    """RTLD_NEXT looks behind the library that asks: the jump to the next dlsym must keep its caller."""
    guard = world.built / "libsalus_guard.so"
    if level == "-O0":
        sources = sorted((NATIVE / "guard").glob("*.c"))
        guard = compiled("guard-O0.so", sources, "-O0", "-fPIC", "-fvisibility=hidden", "-shared")
    first = compiled("next1.so", [PROGRAMS / "next.c"], "-DWHO=1", "-fPIC", "-shared", "-O0")
    second = compiled("next2.so", [PROGRAMS / "next.c"], "-DWHO=2", "-fPIC", "-shared", "-O0")
    between = compiled("between.so", [PROGRAMS / "between.c"], "-fPIC", "-shared", "-O2")
    preload = {"alone": [guard], "before": [between, guard], "after": [guard, between]}[order]
    # The first two libraries come last in the order of search, so that a lost caller finds another answer.
    preloads = ":".join(str(path) for path in [*preload, first, second])
    code = "import ctypes; print(ctypes.CDLL(None).whose())"
    environment = {**world.environment, "LD_PRELOAD": preloads, "JUPYTER_SALUS_SOCKET": str(world.socket)}
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=True,
    )
    assert done.stdout.split() == ["12"]


def test_asking_whether_a_driver_is_there_is_not_answered_by_us(world: World) -> None:
    """A program that looks for a symbol of the driver in itself, as some do to see whether there is one, finds none."""
    code = "import ctypes; print(hasattr(ctypes.CDLL(None), 'cuMemAlloc_v2'))"
    environment = {**world.environment, "JUPYTER_SALUS_SOCKET": str(world.socket)}
    environment["LD_PRELOAD"] = str(world.built / "libsalus_guard.so")
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=True,
    )
    assert done.stdout.strip() == "False"

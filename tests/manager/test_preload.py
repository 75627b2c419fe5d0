"""Which kernels get the guard, and what else that puts into their environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jupyter_salus.manager import preload as module
from jupyter_salus.manager.preload import preload
from jupyter_salus.native import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard is for Linux")


@pytest.fixture(scope="module")
def library() -> Path:
    if build.compiler() is None:
        pytest.skip("no C compiler on this machine: the guard can't be built")
    built = build.cached(Path(tempfile.gettempdir()) / f"jupyter-salus-native-{os.getuid()}")
    assert built is not None
    return built / "libsalus_guard.so"


@pytest.fixture
def host(short_tmp: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a kernel on a host with a driver. Nothing of this host's own driver is seen."""
    (short_tmp / "driver").mkdir()
    (short_tmp / "driver" / "libcuda.so.1").touch()
    monkeypatch.setattr(module, "_LIBRARY_PLACES", ())
    monkeypatch.setattr(module, "_LINKER_CACHE", str(short_tmp / "none"))
    kept = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    return {**kept, "LD_LIBRARY_PATH": str(short_tmp / "driver"), "JUPYTER_SALUS_GUARD": str(library)}


KERNEL = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


def test_a_host_without_a_driver_gets_nothing_and_no_reason(host: dict[str, str]) -> None:
    del host["LD_LIBRARY_PATH"]
    assert preload(KERNEL, host) == module.Preload()


def test_a_driver_in_the_linkers_cache_is_found(
    host: dict[str, str], short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del host["LD_LIBRARY_PATH"]
    (short_tmp / "cache").write_bytes(b"\0libcuda.so.1\0/usr/lib/x/libcuda.so.1\0")
    monkeypatch.setattr(module, "_LINKER_CACHE", str(short_tmp / "cache"))
    assert preload(KERNEL, host).guarded


def test_the_guard_comes_first_and_what_the_user_preloads_is_kept(host: dict[str, str], library: Path) -> None:
    host["LD_PRELOAD"] = "libm.so.6 /usr/lib/libnothing.so"
    made = preload(KERNEL, host)
    assert made.reason is None
    assert made.variables["LD_PRELOAD"] == f"{library}:libm.so.6:/usr/lib/libnothing.so"


def test_a_kernel_that_is_started_again_gets_it_once(host: dict[str, str], library: Path) -> None:
    host.update(preload(KERNEL, host).variables)
    assert preload(KERNEL, host).variables["LD_PRELOAD"] == str(library)


def test_presets_keep_frameworks_modest_and_never_touch_the_users_own(host: dict[str, str]) -> None:
    made = preload(KERNEL, host).variables
    assert made["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert made["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert made["PYTORCH_CUDA_ALLOC_CONF"] == "release_lock_on_cudamalloc:True"
    host.update(
        TF_FORCE_GPU_ALLOW_GROWTH="false",
        XLA_PYTHON_CLIENT_PREALLOCATE="",
        PYTORCH_ALLOC_CONF="expandable_segments:True",
    )
    assert set(preload(KERNEL, host).variables) == {"LD_PRELOAD"}


def test_a_pytorch_that_doesnt_know_the_word_isnt_told_it(host: dict[str, str], short_tmp: Path) -> None:
    distribution = short_tmp / "site" / "torch-2.0.1.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.0.1\n")
    host["PYTHONPATH"] = str(short_tmp / "site")
    module._seen.clear()
    made = preload(KERNEL, host)
    module._seen.clear()
    assert made.guarded
    assert "PYTORCH_CUDA_ALLOC_CONF" not in made.variables


def test_the_interpreter_is_started_once_and_again_when_it_changed(
    host: dict[str, str], short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = short_tmp / "python-wrapped"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    starts: list[str] = []
    real = module._start_once

    def counted(interpreter: str, *arguments: object) -> object:
        starts.append(interpreter)
        return real(interpreter, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_start_once", counted)
    assert preload([str(script)], host).guarded
    assert preload([str(script)], host).guarded
    assert starts == [str(script)]
    os.utime(script, (1, 1))
    assert preload([str(script)], host).guarded
    assert len(starts) == 2


@pytest.mark.parametrize("folder", ["with space", "with:colon", "with$dollar"])
def test_a_path_that_the_loader_cant_read_goes_through_a_link(
    host: dict[str, str], library: Path, short_tmp: Path, folder: str
) -> None:
    (short_tmp / folder).mkdir()
    copy = shutil.copy(library, short_tmp / folder / "g.so")
    host["JUPYTER_SALUS_GUARD"] = str(copy)
    made = preload(KERNEL, host)
    assert made.reason is None
    path = made.variables["LD_PRELOAD"]
    assert not set(path) & set(" :$")
    assert os.path.realpath(path) == os.path.realpath(copy)
    done = subprocess.run(
        [sys.executable, "-c", "print(open('/proc/self/maps').read().count('g.so') > 0)"],
        env={**host, **made.variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_switched_off_means_plain_with_that_reason(host: dict[str, str]) -> None:
    assert preload(KERNEL, host, allowed=False).reason == "the guard is switched off"
    host["JUPYTER_SALUS_GUARD"] = "off"
    assert preload(KERNEL, host) == module.Preload(reason="the guard is switched off")


def test_a_library_that_isnt_there_or_isnt_one_means_plain(host: dict[str, str], short_tmp: Path) -> None:
    host["JUPYTER_SALUS_GUARD"] = str(short_tmp / "none.so")
    assert "isn't built" in str(preload(KERNEL, host).reason)
    (short_tmp / "text.so").write_text("no library")
    host["JUPYTER_SALUS_GUARD"] = str(short_tmp / "text.so")
    made = preload(KERNEL, host)
    assert not made.guarded
    assert "doesn't load the guard" in str(made.reason)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_a_library_that_the_user_cant_read_means_plain(host: dict[str, str], library: Path, short_tmp: Path) -> None:
    copy = Path(shutil.copy(library, short_tmp / "g.so"))
    copy.chmod(0)
    host["JUPYTER_SALUS_GUARD"] = str(copy)
    assert "can't be read" in str(preload(KERNEL, host).reason)


def test_a_library_that_answers_for_the_driver_means_plain(
    host: dict[str, str], library: Path, short_tmp: Path
) -> None:
    other = shutil.copy(library, short_tmp / "divider.so")
    host["LD_PRELOAD"] = str(other)
    reason = str(preload(KERNEL, host).reason)
    assert reason.startswith(str(other))
    assert "before the driver" in reason


def test_a_program_that_takes_no_preload_means_plain(host: dict[str, str], short_tmp: Path) -> None:
    real = Path(os.path.realpath(sys.executable)).read_bytes()[:4096]
    thirty_two, static, text = (short_tmp / name for name in ("narrow", "static", "text"))
    thirty_two.write_bytes(real[:4] + b"\1" + real[5:])
    # A program without a row for the loader in its table.
    static.write_bytes(real[:54] + b"\0\0\0\0" + real[58:])
    text.write_text("echo nothing")
    for one in (thirty_two, static, text):
        one.chmod(0o755)
    assert "32-bit" in str(preload([str(thirty_two)], host).reason)
    assert "statically linked" in str(preload([str(static)], host).reason)
    assert "isn't a program" in str(preload([str(text)], host).reason)
    assert "isn't found" in str(preload([str(short_tmp / "none")], host).reason)


def test_what_isnt_python_is_looked_at_and_not_run(host: dict[str, str], short_tmp: Path) -> None:
    assert preload(["/bin/sh", "-c", f"touch {short_tmp / 'ran'}"], host).guarded
    assert not (short_tmp / "ran").exists()

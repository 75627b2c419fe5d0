"""What every test gets: a home and directories of its own, short socket paths, and a look at what it left behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: In the environment of this run's processes, so that one that outlives its test is found wherever it was moved to.
RUN_MARK = "JUPYTER_SALUS_TEST_RUN"
#: How long what a test started may take to end by itself, in seconds. Generous: the machine may be loaded.
LEAK_PATIENCE_S = 20.0


def pytest_configure() -> None:
    """A shell starts what runs in its background with SIGINT ignored, and so would all kernels and servers of the tests be."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker of pytest-xdist: in the order of its units of work, the same on each."""
    if hasattr(config, "workerinput"):
        from tests.distribution import rank

        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Called where `-n` is given; None leaves a `--dist` that was asked for to pytest-xdist."""
    if config.getvalue("dist") != "load":
        return None
    from tests.distribution import ByPart

    return ByPart(config, log)


def _short_dir() -> Path:
    """A directory whose path leaves room for a socket's name within the 107 bytes that a Unix socket may have."""
    return Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))


@pytest.fixture(scope="session", autouse=True)
def isolated_run() -> Iterator[Path]:
    """Directories and environment for the whole run: nothing of the person's who runs the tests is read or written."""
    home = _short_dir()
    environment = {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter-config"),
        "JUPYTER_DATA_DIR": str(home / "jupyter-data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "JUPYTER_SALUS_RUN_DIR": str(home),
        "JUPYTER_SALUS_STATE_DIR": str(home / "state"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "MPLBACKEND": "Agg",
        # Threads of a matrix product spin while they wait for one another, which on a loaded machine takes most of it.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "xdg-state"),
        RUN_MARK: uuid.uuid4().hex,
    }
    inherited = [name for name in os.environ if name.startswith(("JUPYTER_SALUS_", "JPY_"))]
    kept = {name: os.environ.pop(name, None) for name in [*environment, *inherited]}
    os.environ.update(environment)
    (home / "runtime").mkdir(mode=0o700)
    yield home
    for name, value in kept.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A directory like `/tmp/jsXXXXXXXX`, for sockets; removed afterwards."""
    path = _short_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_address(isolated_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two tests meet in one backend by accident: each finds a free address and a state directory of its own."""
    token = uuid.uuid4().hex[:8]
    (isolated_run / token).mkdir(mode=0o700)
    monkeypatch.setenv("JUPYTER_SALUS_RUN_DIR", str(isolated_run / token))
    monkeypatch.setenv("JUPYTER_SALUS_STATE_DIR", str(isolated_run / f"state-{token}"))


def marked_processes() -> dict[int, str]:
    """The processes of this test run other than this one, zombies left out, by pid, with their command lines."""
    mark = f"{RUN_MARK}={os.environ.get(RUN_MARK, 'none')}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if line:
                    found[int(entry.name)] = line
        except OSError:
            continue  # it ended meanwhile, or is somebody else's
    return found


def _lasting_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if not one.daemon and one.is_alive()}


@pytest.fixture(autouse=True)
def no_leaks(own_address: None) -> Iterator[None]:
    """Fails a test that leaves a process or a non-daemon thread; ends the process, so that no other test meets it."""
    processes = set(marked_processes())
    threads = _lasting_threads()
    yield
    deadline = time.monotonic() + LEAK_PATIENCE_S
    while True:
        left = {pid: line for pid, line in marked_processes().items() if pid not in processes}
        stuck = _lasting_threads() - threads
        if not left and not stuck:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself: still late
    pytest.fail(f"the test left behind: processes {left or 'none'}, threads {stuck or 'none'}")


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """`wait_until(condition, what, timeout_s=60)`: returns once it holds, fails the test with `what` otherwise."""

    def wait(condition: Callable[[], object], what: str = "the condition", timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {timeout_s:g} s for {what}")
            time.sleep(0.02)

    return wait


def descriptors() -> dict[int, str]:
    """The open descriptors of this process that stand for sockets, pidfds and memfds, with what they are."""
    found: dict[int, str] = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith(("socket:", "/memfd:")) or "pidfd" in target:
            found[int(entry.name)] = target
    return found


@pytest.fixture
def no_descriptor_leaks() -> Iterator[None]:
    """Asked for by name: fails a test after which more sockets, pidfds or memfds are open in this process."""
    import gc

    before = descriptors()
    yield
    gc.collect()
    left = {number: target for number, target in descriptors().items() if before.get(number) != target}
    assert not left, f"the test left descriptors open: {left}"

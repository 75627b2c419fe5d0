"""How a backend begins, finds another one, and ends; and how a user's own is started."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_salus.backend.daemon.listening import Listening
from jupyter_salus.backend.devices.processes import alive
from jupyter_salus.errors import AddressInUse, BackendGone
from jupyter_salus.protocol.address import Address, find
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.framing import encode
from jupyter_salus.protocol.launch import answering, ensure_backend
from tests.daemon.speaking import PATIENCE_S, Daemon

BACKEND = [sys.executable, "-m", "jupyter_salus.backend"]
#: The same backend, of an older version.
OLDER = [
    sys.executable,
    "-c",
    "import sys; from jupyter_salus.protocol import version; version.VERSION = '0.0.1'; "
    "from jupyter_salus.backend.daemon.app import main; sys.exit(main(sys.argv[1:]))",
]


def run(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BACKEND, *options],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def ended(address: Address, pid: int, wait_until: Callable[..., None]) -> None:
    """End a backend that isn't a child of the test."""
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid))


def test_a_second_backend_finds_the_first_and_says_so(daemon: Daemon) -> None:
    second = run(f"--socket={daemon.path}")
    assert second.returncode == 1
    assert f"a backend with pid {daemon.process.pid} and version" in second.stderr
    assert second.stderr.startswith("jupyter salus backend: cannot serve")
    assert "Traceback" not in second.stderr
    assert daemon.state()["backend"]["pid"] == daemon.process.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(daemon: Daemon, number: signal.Signals) -> None:
    guest = daemon.guest("s1")
    daemon.process.send_signal(number)
    assert daemon.process.wait(PATIENCE_S) == 0
    assert guest.hang_up()
    assert not os.path.exists(daemon.path)
    assert not os.path.exists(daemon.admin_path)


def test_a_killed_backends_socket_is_stale_and_replaced(daemon: Daemon) -> None:
    daemon.kill()
    assert stat.S_ISSOCK(os.stat(daemon.path).st_mode)
    with pytest.raises(BackendGone, match="Connection refused"):
        Client(daemon.path)
    daemon.start()
    assert daemon.state()["backend"]["pid"] == daemon.process.pid


def test_a_backend_that_ends_leaves_no_file_and_many_that_come_and_go_never_serve_at_once(short_tmp: Path) -> None:
    address = Address(str(short_tmp / "b.sock"), "configured")
    inside, most = [0], [0]
    guard = threading.Lock()

    def come_and_go() -> None:
        for _ in range(60):
            try:
                listening = Listening(address)
            except AddressInUse:
                continue
            with guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            assert os.path.exists(address.lock_path)
            with guard:
                inside[0] -= 1
            listening.release()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert most == [1]
    assert os.listdir(short_tmp) == []


def test_something_else_at_the_path_is_left_alone(short_tmp: Path) -> None:
    path = short_tmp / "b.sock"
    path.write_text("precious")
    refused = run(f"--socket={path}")
    assert refused.returncode == 2
    assert "isn't a socket" in refused.stderr
    assert path.read_text() == "precious"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        refused = run(f"--socket={path}")
        assert refused.returncode == 2
        assert "something that isn't a backend listens there" in refused.stderr
        assert path.exists()


@pytest.mark.parametrize(
    ("path", "why"),
    [("/tmp/" + "x" * 120, "the limit is 107"), ("/tmp/no-such-directory-here/b.sock", "No such file or directory")],
)
def test_a_path_that_can_not_be_is_told(path: str, why: str) -> None:
    refused = run(f"--socket={path}")
    assert refused.returncode == 2
    assert refused.stderr.startswith("jupyter salus backend: cannot use the socket path")
    assert why in refused.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make somebody else's directory")
def test_somebody_elses_directory_is_told(short_tmp: Path) -> None:
    (short_tmp / "theirs").mkdir(mode=0o700)
    os.chown(short_tmp / "theirs", 12345, 12345)
    refused = run(f"--socket={short_tmp / 'theirs' / 'b.sock'}")
    assert refused.returncode == 2
    assert "belongs to uid 12345" in refused.stderr


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        (["--device=tpu"], 2, "'tpu'"),
        (["--capacity=much"], 2, "cannot use 'much' as a size"),
        (["--capacity=1"], 2, "a capacity of 1 bytes: the least is 33554432 (32MiB)"),
        (["--policy=lottery"], 2, "'lottery'"),
        (["--no-such-option"], 2, "--no-such-option"),
        (["stray"], 2, "stray"),
        (["--exit-when-idle=soon"], 2, "soon"),
        (["--policy"], 2, "argument --policy: expected one argument"),
    ],
)
def test_wrong_options_end_with_2_and_say_which(options: list[str], status: int, why: str) -> None:
    refused = run(*options)
    assert refused.returncode == status
    (line,) = refused.stderr.splitlines()
    assert line.startswith("jupyter salus backend: ")
    assert why in line
    assert line.endswith("(`jupyter salus backend --help` lists its options)")


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="an NVIDIA driver is here")
def test_a_gpu_where_no_driver_is_ends_with_a_clear_error() -> None:
    refused = run("--device=cuda")
    assert refused.returncode == 1
    assert "no NVIDIA driver is on this machine" in refused.stderr


def test_help_version_and_unit_end_with_0() -> None:
    for options, said in (
        (["--help"], "--exit-when-idle"),
        (["--version"], "."),
        (["--print-unit", "--device=host"], "ListenStream=/run/jupyter-salus/backend.sock"),
    ):
        done = run(*options)
        assert done.returncode == 0
        assert said in done.stdout


def test_options_reach_the_device(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--device=auto", "--capacity=2GiB", "--policy=fifo")
    device = daemon.state()["devices"][0]
    assert (device["id"], device["capacity_bytes"], device["policy"]) == ("host", 2 * 1024**3, "fifo")
    if not os.path.exists("/proc/driver/nvidia/version"):
        assert "no NVIDIA driver is here" in daemon.log()


def test_without_a_capacity_the_machine_is_the_budget(start_daemon: Callable[..., Daemon]) -> None:
    device = start_daemon("--device=host").state()["devices"][0]
    assert 0 < device["free_bytes"] < device["capacity_bytes"]


def test_an_unwritable_state_directory_keeps_nobody_from_running(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--device=host", environ={"JUPYTER_SALUS_STATE_DIR": "/proc/no-such-place"})
    guest = daemon.guest("s1", path="a.ipynb")
    guest.say({"kind": "turn_wanted", "ticket": 1})
    guest.hear("turn_granted")
    with daemon.client() as client:
        client.act("priority", "s1", "high")
    assert daemon.state()["backend"]["healthy"]


def test_it_ends_when_nobody_is_there_for_long_enough(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--device=host", "--exit-when-idle=0.5")
    server = daemon.talker({"role": "server"})
    server.hear("welcome")
    guest = daemon.guest_process("s1")
    server.close()
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(1.5)  # A session keeps it.
    guest.process.kill()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert "no session for 0.5 s" in daemon.log()


def test_a_users_own_backend_is_started_once_however_many_want_it(wait_until: Callable[..., None]) -> None:
    address = find({**os.environ})
    assert address.kind == "own"
    welcomes: list[int] = []
    threads = [threading.Thread(target=lambda: welcomes.append(ensure_backend(address).pid)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pid = welcomes[0]
    try:
        assert welcomes == [pid] * 3
        assert os.getsid(pid) != os.getsid(0)
        assert os.stat(os.path.dirname(address.path)).st_mode & 0o777 == 0o700
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"JUPYTER_SALUS_TOKEN" not in environment
        left = {os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)}
        assert left == {"/dev/null", os.path.join(os.environ["JUPYTER_SALUS_STATE_DIR"], "backend.log")}
    finally:
        ended(address, pid, wait_until)


def test_a_backend_that_does_not_come_up_is_told_with_the_end_of_its_log() -> None:
    with pytest.raises(BackendGone, match="didn't come up: jupyter salus backend: cannot use 'much' as a size"):
        ensure_backend(find({**os.environ}), options=["--capacity=much"])


def test_an_older_backend_without_sessions_makes_way_for_a_newer_one(wait_until: Callable[..., None]) -> None:
    address = find({**os.environ})
    old = subprocess.Popen([*OLDER, "--device=host"], stderr=subprocess.DEVNULL)
    wait_until(lambda: answering(address) is not None)
    welcome = ensure_backend(address)
    assert old.wait(PATIENCE_S) == 0
    assert welcome.pid != old.pid
    ended(address, welcome.pid, wait_until)


def test_an_older_backend_with_sessions_stays(
    wait_until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    address = find({**os.environ})
    old = subprocess.Popen([*OLDER, "--device=host"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answering(address) is not None)
        with socket.socket(socket.AF_UNIX) as guest:
            guest.connect(address.path)
            guest.sendall(
                encode({"kind": "hello", "role": "guest", "protocol": [1, 1], "version": "0", "session": "s"})
            )
            assert guest.recv(4096)
            assert ensure_backend(address).pid == old.pid
        assert "is version 0.0.1" in caplog.text
    finally:
        old.terminate()
        old.wait(PATIENCE_S)

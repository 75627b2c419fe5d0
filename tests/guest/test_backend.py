"""Kernels with the real backend: turns alternate, and a backend that dies in a turn is followed by one that knows it all."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus.errors import SalusError
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.messages import Announce
from tests.guest.kernels import Kernel

#: Computes in a plain loop, and writes down when each iteration ran.
LOGGING = """
import json, os, time
log = []
while not os.path.exists({flag!r}):
    began = time.monotonic()
    sum(range(30000))
    log.append((began, time.monotonic()))
print(json.dumps(log))
"""


class Backend:
    """The real backend on the host device, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "b.sock"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, wait_until: Callable[..., None]) -> None:
        """Serve, and wait until it answers."""
        command = [sys.executable, "-m", "jupyter_salus.backend", "--socket", str(self.socket)]
        command += ["--device", "host", "--capacity", "16GiB", "--exit-when-idle", "600"]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        wait_until(self.answers, "the backend")

    def answers(self) -> bool:
        """Whether it is there."""
        try:
            self.sessions()
        except SalusError:
            return False
        return True

    def sessions(self) -> dict[str, Any]:
        """The rows of its state by session."""
        with Client(str(self.socket)) as client:
            return {row["id"]: row for row in client.ask("state")["sessions"]}

    def kill(self) -> None:
        """As if it crashed."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@pytest.fixture
def real(short_tmp: Path, wait_until: Callable[..., None]) -> Iterator[Backend]:
    """A running backend."""
    made = Backend(short_tmp)
    made.start(wait_until)
    yield made
    made.kill()


def start_two(
    real: Backend, start_kernel: Callable[..., Kernel], wait_until: Callable[..., None], **environ: str
) -> list[Kernel]:
    """Two announced kernels whose guests are connected."""
    with Client(str(real.socket), role="server") as server:
        for name in ("s1", "s2"):
            server.request(Announce, session=name, token=f"token-of-{name}", incarnation=1, kernel_id=name)
        kernels = [start_kernel(real.socket, session=name, **environ) for name in ("s1", "s2")]
        wait_until(lambda: set(real.sessions()) >= {"s1", "s2"}, "both sessions")
    return kernels


def test_two_plain_loops_alternate(
    real: Backend, start_kernel: Callable[..., Kernel], wait_until: Callable[..., None], short_tmp: Path
) -> None:
    kernels = start_two(real, start_kernel, wait_until)
    flag = short_tmp / "flag"
    requests = [kernel.submit(LOGGING.format(flag=str(flag))) for kernel in kernels]
    wait_until(lambda: all(row["turns"] >= 3 for row in real.sessions().values()), "three turns each")
    flag.touch()
    logs = [json.loads(kernel.collect(request).text) for kernel, request in zip(kernels, requests, strict=True)]
    both = sorted((began, ended, which) for which, log in enumerate(logs) for began, ended in log)
    switches = [(one, two) for one, two in itertools.pairwise(both) if one[2] != two[2]]
    assert len(switches) >= 4


def test_a_backend_killed_in_a_turn_disturbs_no_cell_and_the_next_one_knows_the_sessions(
    real: Backend, start_kernel: Callable[..., Kernel], wait_until: Callable[..., None], short_tmp: Path
) -> None:
    kernels = start_two(real, start_kernel, wait_until)
    flag = short_tmp / "flag"
    requests = [kernel.submit(LOGGING.format(flag=str(flag))) for kernel in kernels]
    wait_until(lambda: all(row["turns"] >= 2 for row in real.sessions().values()), "two turns each")
    real.kill()
    real.start(wait_until)
    wait_until(lambda: set(real.sessions()) >= {"s1", "s2"}, "both sessions again")
    wait_until(lambda: all(row["turns"] >= 1 for row in real.sessions().values()), "a turn each, of the new backend")
    flag.touch()
    assert all(kernel.collect(request).status == "ok" for kernel, request in zip(kernels, requests, strict=True))


def test_nobody_waits_for_a_backend_that_hangs_and_it_governs_again_once_it_goes_on(
    real: Backend, start_kernel: Callable[..., Kernel], wait_until: Callable[..., None], short_tmp: Path
) -> None:
    assert real.process is not None
    kernels = start_two(real, start_kernel, wait_until, JUPYTER_SALUS_PATIENCE_S="1")
    flag = short_tmp / "flag"
    requests = [kernel.submit(LOGGING.format(flag=str(flag))) for kernel in kernels]
    wait_until(lambda: all(row["turns"] >= 2 for row in real.sessions().values()), "two turns each")
    real.process.send_signal(signal.SIGSTOP)
    try:
        flag.touch()
        assert all(kernel.collect(request).status == "ok" for kernel, request in zip(kernels, requests, strict=True))
        lines = [kernel.run("%salus status").text for kernel in kernels]
    finally:
        real.process.send_signal(signal.SIGCONT)
    assert any("it didn't answer for 1 s. Code runs ungoverned" in text for text in lines), lines
    flag.unlink()
    wait_until(lambda: set(real.sessions()) >= {"s1", "s2"}, "both sessions again")
    turns = {name: row["turns"] for name, row in real.sessions().items()}
    requests = [kernel.submit(LOGGING.format(flag=str(flag))) for kernel in kernels]
    wait_until(lambda: all(row["turns"] > turns[name] for name, row in real.sessions().items()), "more turns")
    flag.touch()
    assert all(kernel.collect(request).status == "ok" for kernel, request in zip(kernels, requests, strict=True))

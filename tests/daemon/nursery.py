"""Backends as forks of one process that has imported everything: the same program, and a third of a second sooner each.

What a backend gets of its own is what the command line would give it: options, environment, descriptors, signals. How it
starts from nothing is tested where its own lifetime is.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20
#: What a person wouldn't mind to wait for, and a test does: seconds between looks, and until what is late is said so.
_SOONER: dict[str, Any] = {
    "daemon.backend.FLUSH_S": 0.2,
    "daemon.sampling.IDLE_S": 0.3,
    "daemon.sampling.TOTALS_S": 0.4,
    "daemon.servers.SHOWN_S": 0.4,
    "core.leases.LEAVES_S": 0.5,
}


class Nursery:
    """The process in which backends are born. `current` is the one that is there, if any."""

    current: Nursery | None = None

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from tests.daemon import nursery; nursery.serve({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd=Path(__file__).parents[2],
            )
        self._socket.recv(_MOST_BYTES)  # it is there, for whoever looks at what runs

    def born(
        self, options: Sequence[str], environ: Mapping[str, str], config: Mapping[str, Any], log: int, ready: int
    ) -> Born:
        """A backend with these options; `config`: constants of its scheduler that aren't as usual, by their names, and of
        modules, as `daemon.clock.STOOD_S`."""
        wanted = {"options": list(options), "environ": dict(environ), "config": dict(config)}
        socket.send_fds(self._socket, [json.dumps(wanted).encode()], [log, ready])
        while True:
            said = json.loads(self._socket.recv(_MOST_BYTES))
            if "status" not in said:
                return Born(self, said["pid"])
            self._statuses[said["pid"]] = said["status"]

    def status(self, pid: int, timeout_s: float) -> int | None:
        """How a backend ended, once it has; None: it didn't in time."""
        deadline = time.monotonic() + timeout_s
        while pid not in self._statuses:
            ready, _, _ = select.select([self._socket], [], [], max(deadline - time.monotonic(), 0.0))
            if not ready:
                return None
            said = json.loads(self._socket.recv(_MOST_BYTES))
            self._statuses[said["pid"]] = said["status"]
        return self._statuses[pid]

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class Born:
    """One backend, as `subprocess.Popen` has it."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self.returncode = self._nursery.status(self.pid, 0.0)
        return self.returncode

    def wait(self, timeout: float = 120.0) -> int:
        self.returncode = self._nursery.status(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a backend", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(number: int) -> None:
    """In the nursery: bear what is asked for and tell of each end, until nobody asks any more."""
    import jupyter_salus.backend.daemon.app  # noqa: F401  (what takes long is done once)

    gc.freeze()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=number) as asked:
        asked.send(b"ready")
        while True:
            ready, _, _ = select.select([asked.fileno(), reader], [], [])
            if reader in ready:
                os.read(reader, 4096)
            for pid, status in _ended():
                asked.send(json.dumps({"pid": pid, "status": status}).encode())
            if asked.fileno() not in ready:
                continue
            data, descriptors, _, _ = socket.recv_fds(asked, _MOST_BYTES, 2)
            if not data:
                return
            pid = os.fork()
            if not pid:
                asked.close()
                os.close(reader)
                os.close(writer)
                _live(json.loads(data), *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            asked.send(json.dumps({"pid": pid}).encode())


def _ended() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


def _live(wanted: dict[str, Any], log: int, ready: int) -> None:
    """In the backend: be the program with these options."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ.clear()
        os.environ.update(wanted["environ"])
        for directory in filter(None, wanted["environ"].get("LD_LIBRARY_PATH", "").split(os.pathsep)):
            library = Path(directory, "libnvidia-ml.so.1")
            if library.exists():
                ctypes.CDLL(str(library))  # under whose name it is found from now on, as by a program that is started
        from jupyter_salus.backend.daemon import app, backend

        constants = {}
        for name, value in {**_SOONER, **wanted["config"]}.items():
            module, _, constant = name.rpartition(".")
            if module:
                setattr(sys.modules[f"jupyter_salus.backend.{module}"], constant, value)
            else:
                constants[name] = value
        backend.Config = functools.partial(backend.Config, **constants)  # type: ignore[assignment, attr-defined]
        status = app.main([*wanted["options"], f"--ready-fd={ready}"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)

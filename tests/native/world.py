"""A device (the stand-in's, or the real one), processes on it, and a backend to govern them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.native.backend import PATIENCE_S, Backend

PROGRAMS = Path(__file__).parent / "programs"
GRANULE = 2 << 20


class ChildError(Exception):
    """What was run in the child raised; `code` is the driver's error, if it was one."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


class Child:
    """A process in which code is run. Its namespace begins with all of `programs/cuda.py`."""

    def __init__(self, environment: dict[str, str], command: list[str] | None = None) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, "-E", "-S", str(PROGRAMS / "console.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.answers: dict[int, dict[str, Any]] = {}
        self.changed = threading.Condition()
        self.orders = 0
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self, code: str, apart: bool = True) -> int:
        """Runs `code` on a thread of its own; `end` waits for it."""
        self.orders += 1
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"n": self.orders, "code": code, "apart": apart}) + "\n")
        self.process.stdin.flush()
        return self.orders

    def ready(self, number: int) -> bool:
        with self.changed:
            return number in self.answers

    def end(self, number: int) -> Any:
        with self.changed:
            done = self.changed.wait_for(lambda: number in self.answers or self.ended, PATIENCE_S)
            assert done, "the child still waits"
            assert number in self.answers, f"the child ended with {self.process.poll()}"
            answer = self.answers[number]
        if "error" in answer:
            raise ChildError(answer["error"], answer.get("code"))
        return answer["value"]

    def do(self, code: str) -> Any:
        """Runs `code` on the main thread; the value, if it is an expression."""
        return self.end(self.begin(code, apart=False))

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.do("guard_state()")
        return state

    def stop(self) -> None:
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass  # it ended before
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout
        try:
            for line in self.process.stdout:
                answer = json.loads(line)
                with self.changed:
                    self.answers[answer["n"]] = answer
                    self.changed.notify_all()
        except ValueError:
            pass  # closed by `stop`
        with self.changed:
            self.ended = True
            self.changed.notify_all()


class World:
    """What one test runs in."""

    def __init__(self, built: Path, directory: Path, real: bool) -> None:
        self.built, self.directory, self.real = built, directory, real
        self.children: list[Child] = []
        self.backends: list[Backend] = []
        self.socket = directory / "s"
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER_SALUS_", "SALUS_", "LD_PRELOAD"))
        }
        self.environment.update(JUPYTER_SALUS_GUARD_LOG=str(directory / "log"), PYTHONDONTWRITEBYTECODE="1")
        if not real:
            self.environment.update(
                SALUS_STANDIN_FILE=str(directory / "device"), LD_LIBRARY_PATH=str(built / "standin")
            )

    def child(self, guard: str | Path | None = "built", begin: str = "from cuda import *", **environment: str) -> Child:
        """A process; with the guard unless `guard` is None. `begin` is run in it first."""
        env = {**self.environment, **environment}
        if guard is not None:
            env.setdefault("JUPYTER_SALUS_SOCKET", str(self.socket))
            env.setdefault("JUPYTER_SALUS_SESSION", "s1")
            env["LD_PRELOAD"] = str(self.built / "libsalus_guard.so" if guard == "built" else guard)
        child = Child(env)
        self.children.append(child)
        child.do(begin)
        return child

    def backend(self, easy: bool = True) -> Backend:
        backend = Backend(self.socket, easy)
        self.backends.append(backend)
        return backend

    def used(self, device: int = 0) -> int:
        """Bytes in use on the device as seen from outside of all its processes."""
        if self.real:
            import pynvml

            pynvml.nvmlInit()
            return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(device)).used)
        path = self.directory / "device"
        if not path.exists():
            return 0
        data = path.read_bytes()
        rows = struct.iter_unpack("<6Q", data[24 : 24 + 256 * 48])
        return sum(row[2 + device] for row in rows if row[0] and _born(row[0]) == row[1])

    def stop(self) -> None:
        for child in self.children:
            child.stop()
        for backend in self.backends:
            backend.stop()


def _born(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text[text.rindex(")") + 2 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19])

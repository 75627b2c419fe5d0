"""Real processes for these tests: a backend, Jupyter servers, and a person who talks to kernels through them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import requests
import websocket

from jupyter_salus.errors import BackendGone
from jupyter_salus.protocol.client import Client

#: What anything may take on a loaded machine, in seconds. A test that runs into it has failed, whatever the load.
PATIENCE_S = 60.0

#: A cell that uses the device and then computes for minutes without a boundary: whoever else wants a turn waits.
HOLD = (
    "import hashlib\nfor i in range(2_000_000): i * i\nprint('holds', flush=True)\n"
    "hashlib.pbkdf2_hmac('sha256', b'p', b's', 1_000_000_000)"
)
#: `python -m jupyter_server`, but without the check of IRIs, which no schema of a server has: that takes two seconds to load.
SERVES = "import sys; sys.modules['rfc3987_syntax'] = None; from jupyter_server.serverapp import main; main()"
#: A cell that asks for a turn at its first boundary after 20 ms.
WANT = "for i in range(50_000_000): i * i"


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` returns, once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process of this pid runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(pid: int) -> None:
    """Returns once there is no such process."""
    wait_for(lambda: not alive(pid), f"process {pid} to end")


def command_line(pid: int) -> list[str]:
    """A process's argv."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def end(process: subprocess.Popen[Any], sign: int = signal.SIGTERM) -> None:
    """Ask a process of ours to end, and wait; kill it when it doesn't."""
    if process.poll() is None:
        process.send_signal(sign)
        try:
            process.wait(PATIENCE_S / 2)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait(PATIENCE_S)


class Backend:
    """A backend in the foreground at a socket of its own, on the host device."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.socket = str(directory / "b.sock")
        self.environment = {**os.environ, "JUPYTER_SALUS_STATE_DIR": str(directory / "state")}
        self.log = directory / "backend.log"
        self.options = options
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jupyter_salus.backend", f"--socket={self.socket}", "--device=host"]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*command, "--capacity=8GiB", *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        wait_for(lambda: process.poll() is not None or self.answers(), "the backend to answer")
        assert process.poll() is None, self.log.read_text()
        return process

    def answers(self) -> bool:
        """Whether a backend answers at the socket."""
        try:
            Client(self.socket).close()
        except BackendGone:
            return False
        return True

    def state(self) -> dict[str, Any]:
        """The state as the backend tells it."""
        with Client(self.socket) as client:
            return client.ask("state")

    def session(self, id: str) -> dict[str, Any] | None:
        """The row of one session."""
        return next((row for row in self.state()["sessions"] if row["id"] == id), None)

    def managed(self, id: str, incarnation: int = 1) -> dict[str, Any]:
        """The row of a session once its guest of this incarnation, or a later one, has said hello.

        Bytes are counted from then on: an announced or unmanaged kernel has none.
        """

        def connected() -> dict[str, Any] | None:
            row = self.session(id)
            there = row is not None and row["incarnation"] >= incarnation and row["persistent_bytes"] > 0
            return row if there else None

        found: dict[str, Any] = wait_for(connected, f"the guest of session {id}")
        return found

    def unmanaged(self, id: str) -> str:
        """Why a session isn't managed, once the backend knows."""

        def told() -> str | None:
            row = self.session(id)
            return row["unmanaged_reason"] if row is not None else None

        return str(wait_for(told, f"the reason why session {id} isn't managed"))

    def without(self, id: str) -> None:
        """Returns once the backend has no such session."""
        wait_for(lambda: self.session(id) is None, f"session {id} to be gone")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def restart(self) -> None:
        """Another backend at the same address."""
        self.process = self._started()

    def stop(self) -> None:
        """SIGTERM."""
        end(self.process)


def _pack(part: Any) -> bytes:
    return json.dumps(part).encode()


def _parent(message: dict[str, Any]) -> str | None:
    """The request that a message belongs to. What xeus says of its own accord has no parent at all."""
    return (message["parent_header"] or {}).get("msg_id")


class Talk:
    """A client of one kernel, as a browser is one: over the server's websocket."""

    def __init__(self, server: JupyterServer, kernel_id: str, framed: bool = False) -> None:
        """`framed`: in the newer form of that, the only one that some extensions take."""
        url = f"ws://127.0.0.1:{server.port}{server.base_url}api/kernels/{kernel_id}/channels?token={server.token}"
        form = ["v1.kernel.websocket.jupyter.org"] if framed else None
        self._socket = websocket.create_connection(url, timeout=PATIENCE_S, subprotocols=form)
        self._framed = framed
        self._session = uuid.uuid4().hex

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the tab."""
        self._socket.close()

    def send(self, code: str, **content: Any) -> str:
        """Have a cell executed; its message id."""
        request = uuid.uuid4().hex
        body = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
            **content,
        }
        header = {
            "msg_id": request,
            "session": self._session,
            "username": "",
            "version": "5.3",
            "msg_type": "execute_request",
        }
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": body}
        if self._framed:
            # Only here: a server's package takes long to import, and few need this.
            from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

            self._socket.send_binary(serialize_msg_to_ws_v1(message, "shell", pack=_pack))
        else:
            self._socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return request

    def _heard(self) -> dict[str, Any]:
        """The next message."""
        data = self._socket.recv()
        if not self._framed:
            message: dict[str, Any] = json.loads(data)
            return message
        from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1

        _, parts = deserialize_msg_from_ws_v1(data)
        header, parent, _, content = (json.loads(part) for part in parts[:4])
        return {"msg_type": header["msg_type"], "parent_header": parent, "content": content}

    def reply(self, request: str) -> dict[str, Any]:
        """The reply to a cell with its printed text as `stdout`, once the kernel is idle again."""
        reply: dict[str, Any] | None = None
        printed, idle = "", False
        while reply is None or not idle:
            message = self._heard()
            if _parent(message) != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "execute_reply":
                reply = content
            elif kind == "stream" and content["name"] == "stdout":
                printed += content["text"]
            elif kind == "status":
                idle = content["execution_state"] == "idle"
        return {**reply, "stdout": printed}

    def until_printed(self, request: str, text: str) -> None:
        """Returns once the cell has printed `text`."""
        printed = ""
        while text not in printed:
            message = self._heard()
            if _parent(message) == request and message["msg_type"] == "stream":
                printed += message["content"]["text"]

    def run(self, code: str, **content: Any) -> dict[str, Any]:
        """`send` and `reply`."""
        return self.reply(self.send(code, **content))


class JupyterServer:
    """A real server in a process of its own, with `Manager`, directories of its own and a port that was free."""

    #: Those that run now.
    running: ClassVar[list[JupyterServer]] = []

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str | None] | None = None,
        manager: str | None = "jupyter_salus.Manager",
        base_url: str = "/",
        config: str | None = None,
        python: str = sys.executable,
        companions: Sequence[str] = (),
    ) -> None:
        self.root = directory / "notebooks"
        self.runtime = directory / "runtime"
        for made in (self.root, self.runtime, directory / "config"):
            made.mkdir(exist_ok=True)
        # Nothing but our extension: it is what is tested, and the others take time to load.
        others = ("jupyterlab", "jupyter_lsp", "jupyter_server_terminals", "notebook_shim")
        extensions = {"jupyter_salus": True, **dict.fromkeys(others, False), **dict.fromkeys(companions, True)}
        settings = {"ServerApp": {"jpserver_extensions": extensions}}
        (directory / "config" / "jupyter_server_config.json").write_text(json.dumps(settings))
        if config is not None:
            (directory / "config" / "jupyter_server_config.py").write_text(config)
        self.token = uuid.uuid4().hex
        self.base_url = base_url
        self.log = directory / "server.log"
        environ = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(directory / "config"),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTER_NO_CONFIG": "",
        }
        for name, value in (variables or {}).items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
        command = [python, "-c", SERVES, "--allow-root", "--no-browser", f"--port={_free_port()}"]
        command += [f"--ServerApp.root_dir={self.root}", f"--ServerApp.base_url={base_url}"]
        command.append(f"--IdentityProvider.token={self.token}")
        if manager is not None:
            command.append(f"--ServerApp.kernel_manager_class={manager}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd=self.root
            )
        self.port = 0
        #: The kernels that were started here and not ended by `shut_down`.
        self.kernels: set[str] = set()
        self.running.append(self)
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {self.token}"

    def wait(self) -> JupyterServer:
        """Returns once the server answers."""
        info = self.runtime / f"jpserver-{self.process.pid}.json"

        def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            try:
                self.port = json.loads(info.read_text())["port"]
                return self.http.get(self.url("api"), timeout=PATIENCE_S).ok
            except (OSError, ValueError, requests.RequestException):
                return False

        try:
            wait_for(answers, "the server to answer")
        except BaseException:
            self.stop()
            raise
        return self

    def url(self, path: str) -> str:
        """An absolute address below the base URL."""
        return f"http://127.0.0.1:{self.port}{self.base_url}{path}"

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """Any request, authenticated."""
        return self.http.request(method, self.url(path), timeout=PATIENCE_S, **options)

    def start_kernel(self, **model: Any) -> str:
        """A kernel without a session, and so without an environment from the server; its id."""
        answer = self.request("POST", "api/kernels", json=model or None)
        assert answer.status_code == 201, answer.text
        self.kernels.add(answer.json()["id"])
        return str(answer.json()["id"])

    def open_notebook(self, path: str, kernel: str = "python3") -> dict[str, Any]:
        """A session of a notebook, as JupyterLab makes one."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        model = {"path": path, "name": Path(path).name, "type": "notebook", "kernel": {"name": kernel}}
        answer = self.request("POST", "api/sessions", json=model)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        self.kernels.add(found["kernel"]["id"])
        return found

    def shut_down(self, kernel_id: str) -> None:
        """End a kernel as its menu does."""
        assert self.request("DELETE", f"api/kernels/{kernel_id}").status_code == 204
        self.kernels.discard(kernel_id)

    def pid_of(self, kernel_id: str, not_pid: int | None = None) -> int:
        """The pid of a kernel's process, found from outside: a child of the server with its connection file."""

        def found() -> int | None:
            for child in children(self.process.pid):
                try:
                    line = " ".join(command_line(child))
                except OSError:
                    continue
                if f"kernel-{kernel_id}.json" in line and child != not_pid and alive(child):
                    return child
            return None

        return int(wait_for(found, f"the process of kernel {kernel_id}"))

    def stop(self) -> None:
        """Ctrl-C without a terminal, as a hub does it, and SIGTERM."""
        if self in self.running:
            self.running.remove(self)
        self.http.close()
        end(self.process)


def children(pid: int) -> list[int]:
    """The pids of a process's children."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

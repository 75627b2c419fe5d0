"""Real kernels for the guest's tests: started as the manager does it, run cells, told apart by interpreter."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from tests.guest.scripted import PATIENCE_S

BOOT = Path(__file__).resolve().parents[2] / "jupyter_salus" / "guest" / "boot"
#: What a notebook front end sends along with each cell.
NOTEBOOK_METADATA = {"cellId": "c1", "deletedCells": [], "recordTiming": False}


class Ran:
    """What came of a cell."""

    def __init__(self, reply: dict[str, Any], outputs: list[dict[str, Any]]) -> None:
        self.reply = reply
        self.outputs = outputs
        self.status: str = reply["status"]

    @property
    def text(self) -> str:
        """What went to standard output."""
        return "".join(one["content"]["text"] for one in self.outputs if one["msg_type"] == "stream")

    @property
    def traceback(self) -> str:
        """The error as shown."""
        return "\n".join(self.reply.get("traceback", []))


class Kernel:
    """One kernel with its client; governed if `socket` is given."""

    def __init__(self, socket: Path | None, python: str = sys.executable, session: str = "s1", **environ: str) -> None:
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        env = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COVERAGE_PROCESS_START")
        }
        env.update(environ)
        if socket is not None:
            argv.append("--ext=_jupyter_salus_boot")
            env["PYTHONPATH"] = str(BOOT)
            env.update(
                JUPYTER_SALUS_SOCKET=str(socket),
                JUPYTER_SALUS_SESSION=session,
                JUPYTER_SALUS_TOKEN="token-of-" + session,
                JUPYTER_SALUS_INCARNATION="1",
                JUPYTER_SALUS_KERNEL_ID=session,
                JUPYTER_SALUS_NAME=f"{session}.ipynb",
                JUPYTER_SALUS_PATH=f"work/{session}.ipynb",
            )
        self.manager = KernelManager(kernel_name="python3")
        self.manager._kernel_spec = KernelSpec(argv=argv, display_name="test", language="python")
        self.manager.start_kernel(env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def submit(self, code: str, metadata: dict[str, Any] | None = None, **content: Any) -> str:
        """Send a cell; returns the request's id."""
        client: Any = self.client
        full = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
            **content,
        }
        message = client.session.msg("execute_request", full, metadata=metadata or {})
        client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def collect(self, request: str) -> Ran:
        """Wait for a cell's reply and for its idle status."""
        return Ran(self._reply(request), self._outputs(request))

    def run(self, code: str, **more: Any) -> Ran:
        """Run a cell to its end."""
        return self.collect(self.submit(code, **more))

    def output_until(self, request: str, text: str) -> None:
        """Wait until a cell has printed this."""
        seen = ""
        deadline = time.monotonic() + PATIENCE_S
        while text not in seen:
            message = self._iopub(deadline)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
                seen += message["content"]["text"]

    def interrupt(self) -> None:
        """What the server does for `interrupt_mode: signal`."""
        self.manager.interrupt_kernel()

    def kill(self) -> None:
        """As if it had crashed."""
        os.kill(self.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return int(self.manager.provisioner.process.pid)  # type: ignore[union-attr]

    def close(self) -> None:
        """End the kernel and all that belongs to it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def _reply(self, request: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self.client.get_shell_msg(timeout=max(0.01, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") == request:
                content: dict[str, Any] = message["content"]
                return content

    def _outputs(self, request: str) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = []
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self._iopub(deadline)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return outputs
            if message["msg_type"] not in ("status", "execute_input"):
                outputs.append(message)

    def _iopub(self, deadline: float) -> dict[str, Any]:
        try:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"nothing more published in {PATIENCE_S} s") from None
        return message

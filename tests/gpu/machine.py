"""A machine with a GPU, from the driver up: the stand-in's libraries (or the real ones), a real backend, real kernels.

Kernels are started as nbclient starts them, by `NotebookKernelManager` with the guard preloaded; everything that a kernel
or the backend finds it finds by its name, as on a machine with a card.
"""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from jupyter_client.kernelspec import KernelSpecManager

from jupyter_salus.errors import BackendGone
from jupyter_salus.manager import NotebookKernelManager
from jupyter_salus.protocol.client import Client
from tests.manager.running import PATIENCE_S, alive, end, wait_for
from tests.native.world import _born

T = TypeVar("T")
MIB = 1 << 20
FRAMEWORK = Path(__file__).parent / "framework"


class Loop:
    """An event loop on a thread of its own, in which the kernels' managers live; tests wait for what it does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="kernels", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.begin(work).result(3 * PATIENCE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Cell:
    """A cell that was sent: `done`, and `wait` for its reply."""

    def __init__(self, future: concurrent.futures.Future[dict[str, Any]]) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        return self._future.done()

    def wait(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The content of the reply, whatever became of the cell; what it printed is `stdout`."""
        return self._future.result(patience_s)


class Kernel:
    """A kernel and one client of it. Cells run one after the other."""

    def __init__(self, loop: Loop, manager: Any) -> None:
        self._loop = loop
        self.manager = manager
        self.client: Any = None
        self.id: str = ""

    async def start(self, environment: dict[str, str]) -> None:
        await self.manager.start_kernel(env=environment)
        self.id = self.manager.kernel_id
        await self._connect()

    async def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=2 * PATIENCE_S)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def begin(self, code: str, value: str = "None") -> Cell:
        """Send a cell; `value` is an expression evaluated after it."""

        async def run() -> dict[str, Any]:
            printed: list[str] = []

            def hear(message: dict[str, Any]) -> None:
                if message["msg_type"] == "stream":
                    printed.append(message["content"]["text"])

            reply = await self.client.execute_interactive(
                code,
                user_expressions={"value": f"__import__('json').dumps({value})"},
                timeout=3 * PATIENCE_S,
                output_hook=hear,
            )
            return {**reply["content"], "stdout": "".join(printed)}

        return Cell(self._loop.begin(run()))

    def run(self, code: str, value: str = "None") -> Any:
        """Run a cell that must not fail; the JSON value of the expression after it."""
        return self.value(self.begin(code, value))

    def value(self, cell: Cell) -> Any:
        """The value that a cell ended with; it must not have failed."""
        reply = cell.wait(3 * PATIENCE_S)
        assert reply["status"] == "ok", "\n".join(reply.get("traceback", [str(reply)]))
        shown = reply["user_expressions"]["value"]
        assert shown["status"] == "ok", shown
        return json.loads(ast.literal_eval(shown["data"]["text/plain"]))

    def interrupt(self) -> None:
        self._loop.do(self.manager.interrupt_kernel())

    def restart(self) -> None:
        async def again() -> None:
            self.client.stop_channels()
            await self.manager.restart_kernel(now=True)
            await self._connect()

        self._loop.do(again())

    def kill(self) -> None:
        """kill -9, and no more."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid), f"kernel {pid} to be gone")

    def stop(self) -> None:
        async def shut_down() -> None:
            if self.client is not None:
                self.client.stop_channels()
            await self.manager.shutdown_kernel(now=True)

        self._loop.do(shut_down())


_PLAIN = ("-m", "jupyter_salus.backend")
_WITH_CONFIG = """
import runpy
import jupyter_salus.backend.daemon.backend as module
config = module.Config(**{})
module.Config = lambda: config
runpy.run_module("jupyter_salus.backend", run_name="__main__")
"""


class Backend:
    """A real backend with `--device cuda`. `config`: other figures of the core than the defaults."""

    def __init__(self, machine: Machine, *options: str, **config: Any) -> None:
        self.machine = machine
        self.options = options
        self.config = config
        self.log = machine.directory / "backend.log"
        self.start()

    def start(self) -> None:
        """Start it, again after `kill`."""
        command = [sys.executable, "-c", _WITH_CONFIG.format(self.config)] if self.config else [sys.executable, *_PLAIN]
        command += [f"--socket={self.machine.socket}", "--device=cuda"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.machine.environment,
            )
        wait_for(lambda: self.process.poll() is not None or self._answers(), "the backend to answer")
        assert self.process.poll() is None, self.log.read_text()

    def _answers(self) -> bool:
        try:
            Client(self.machine.socket).close()
        except BackendGone:
            return False
        return True

    def state(self) -> dict[str, Any]:
        with Client(self.machine.socket) as client:
            return client.ask("state")

    def session(self, kernel: Kernel) -> dict[str, Any]:
        """The row of a kernel's session; an empty one if there is none."""
        rows = self.state()["sessions"]
        return next((row for row in rows if row["id"] == kernel.id), {})

    def until(self, kernel: Kernel, **fields: Any) -> dict[str, Any]:
        """The row of a kernel's session once these fields have these values."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.clear()
            seen.update(self.session(kernel))
            return all(seen.get(name) == value for name, value in fields.items())

        try:
            wait_for(there, f"{fields} of {kernel.id}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the last row was {seen}; log: {self.log.read_text()[-2000:]}") from None
        return seen

    def act(self, verb: str, kernel: Kernel, value: Any = None) -> dict[str, Any]:
        with Client(self.machine.socket) as client:
            return client.act(verb, kernel.id, value)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        end(self.process)


class Machine:
    """What one module's tests, or one test, run on."""

    def __init__(
        self, built: Path, directory: Path, capacity_mib: int = 256, devices: int = 1, real: bool = False
    ) -> None:
        self.built = built
        self.real = real
        self.directory = directory
        self.socket = str(directory / "b.sock")
        self.file = directory / "device"
        self.loop = Loop()
        self.kernels: list[Kernel] = []
        self.backends: list[Backend] = []
        dropped = ("JUPYTER_SALUS_SOCKET", "JUPYTER_SALUS_SESSION", "LD_PRELOAD", "LD_LIBRARY_PATH")
        self.environment = {name: value for name, value in os.environ.items() if name not in dropped}
        if real:
            self.environment.update({name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ})
        else:
            self.environment.update(
                SALUS_STANDIN_FILE=str(self.file),
                SALUS_STANDIN_CAPACITY=str(capacity_mib * MIB),
                SALUS_STANDIN_DEVICES=str(devices),
                LD_LIBRARY_PATH=str(built / "standin"),
            )
        self.environment.update(
            PYTHONPATH=os.pathsep.join([str(FRAMEWORK), *filter(None, [os.environ.get("PYTHONPATH")])]),
            JUPYTER_SALUS_GUARD=str(built / "libsalus_guard.so"),
            JUPYTER_SALUS_STATE_DIR=str(directory / "state"),
        )

    def backend(self, *options: str, **config: Any) -> Backend:
        """A backend at this machine's socket; `--reserve 8MiB` unless said otherwise."""
        if not any(option.startswith("--reserve") for option in options):
            options = ("--reserve=8MiB", *options)
        made = Backend(self, *options, **config)
        self.backends.append(made)
        return made

    def kernel(self, name: str = "notebook.ipynb", spec: str = "python3", **environment: str) -> Kernel:
        """A kernel, started and ready. `spec`: a kernelspec's name, or the directory of one."""
        directory, _, spec = spec.rpartition("/")
        specs = KernelSpecManager()
        if directory:
            specs.kernel_dirs.insert(0, directory)
        manager = NotebookKernelManager(
            kernel_name=spec, kernel_spec_manager=specs, salus_socket=self.socket, salus_name=name
        )
        made = Kernel(self.loop, manager)
        self.kernels.append(made)
        self.loop.do(made.start({**self.environment, **environment}))
        return made

    def kernelspec(self, name: str, language: str) -> str:
        """A kernel for another language, as far as anybody can see, that runs Python; its name."""
        directory = self.directory / "data" / "kernels" / name
        directory.mkdir(parents=True)
        (directory / "start.py").write_text("from ipykernel.kernelapp import launch_new_instance as go\ngo()\n")
        argv = [sys.executable, str(directory / "start.py"), "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": name, "language": language}
        (directory / "kernel.json").write_text(json.dumps(spec))
        return str(directory)

    def process(self, code: str, **environment: str) -> subprocess.Popen[str]:
        """A program that isn't one of ours, with a pipe to and from it: a foreign user of the device."""
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def used(self, device: int = 0) -> int:
        """Bytes in use on the device, read past all that is tested."""
        if self.real:
            import pynvml

            pynvml.nvmlInit()
            return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(device)).used)
        data = self.file.read_bytes()
        rows = struct.iter_unpack("<6Q", data[24 : 24 + 256 * 48])
        return sum(row[2 + device] for row in rows if row[0] and _born(row[0]) == row[1])

    def used_by(self, pid: int, device: int = 0) -> int:
        """Bytes in use by one process."""
        rows = struct.iter_unpack("<6Q", self.file.read_bytes()[24 : 24 + 256 * 48])
        return sum(row[2 + device] for row in rows if row[0] == pid and _born(pid) == row[1])

    def story(self) -> str:
        """The ends of the backend's log and journal."""
        files = [self.directory / "backend.log", *sorted((self.directory / "state").glob("journal*"))]
        return "\n".join(one.read_text()[-6000:] for one in files if one.exists())

    def drop(self, kernel: Kernel) -> None:
        """End a kernel before the others."""
        self.kernels.remove(kernel)
        kernel.stop()

    def stop(self) -> None:
        for kernel in self.kernels:
            kernel.stop()
        for backend in self.backends:
            backend.stop()
        self.loop.close()


def until(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` returns, once it is true."""
    return wait_for(condition, what)

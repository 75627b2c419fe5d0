"""Backends that die while kernels share the device, come back, speak another protocol; kernels that stop, fork, are embedded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient

from jupyter_salus.manager import Manager
from jupyter_salus.protocol.client import Client
from tests.manager.kernels import Kernels
from tests.manager.running import HOLD, PATIENCE_S, WANT, Backend, ended, wait_for

#: Computes with boundaries, holding so many bytes, until a file is there; a cell that fails would print no end.
COMPUTES = """
import os
held = bytearray(os.urandom(1)) * ({mebibytes} << 20)
print("begun", flush=True)
n = 0
while not os.path.exists({flag!r}): n += 1
print("end")
"""
#: A backend that speaks other versions of the protocol.
SPEAKS = (
    "import sys; from jupyter_salus.protocol import codec; codec.PROTOCOL = {range}; "
    "from jupyter_salus.backend.daemon.app import main; sys.exit(main(sys.argv[1:]))"
)

EMBEDS = """
from ipykernel.embed import embed_kernel
def work(): embed_kernel(connection_file={connection!r}, local_ns={{"mine": 41 + 1}})
work()
"""


def _speaking(backend: Backend, versions: tuple[int, int]) -> subprocess.Popen[bytes]:
    """Such a backend at the address of one that is gone."""
    command = [sys.executable, "-c", SPEAKS.format(range=versions), f"--socket={backend.socket}", "--device=host"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=backend.environment)


def _embedding(connection: Path, backend: Backend) -> subprocess.Popen[bytes]:
    """A program that embeds a kernel in one of its functions."""
    code = EMBEDS.format(connection=str(connection))
    environ = {**os.environ, "JUPYTER_SALUS_SOCKET": backend.socket}
    return subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL)


class Person:
    """Somebody with a kernel of a manager in this process."""

    def __init__(self, manager: Manager, id: str) -> None:
        self.id = id
        self.kernel: Any = manager.get_kernel(id)
        self.client: Any = self.kernel.client()

    async def begin(self) -> Person:
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=PATIENCE_S)
        return self

    async def reply(self, request: str) -> dict[str, Any]:
        """The reply to a cell."""
        while True:
            message = await self.client.get_shell_msg(timeout=PATIENCE_S)
            if message["parent_header"]["msg_id"] == request:
                content: dict[str, Any] = message["content"]
                return content

    async def printed(self, request: str, text: str) -> None:
        """Returns once a cell has printed this."""
        seen = ""
        while text not in seen:
            message = await self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
                seen += message["content"]["text"]

    async def run(self, code: str) -> dict[str, Any]:
        return await self.reply(self.client.execute(code))


@pytest.fixture
async def backend(short_tmp: Path) -> AsyncIterator[Backend]:
    """A backend that may be killed."""
    made = Backend(short_tmp)
    yield made
    made.stop()


@pytest.fixture
async def people(backend: Backend, kernels: Kernels) -> AsyncIterator[Callable[[int], Any]]:
    """`await people(n)`: kernels, started side by side, each governed."""
    made: list[Person] = []
    manager = kernels.manager(salus_socket=backend.socket)

    async def start(count: int) -> list[Person]:
        ids = await asyncio.gather(*(manager.start_kernel() for _ in range(count)))
        made.extend(await asyncio.gather(*(Person(manager, id).begin() for id in ids)))
        for one in made:
            await asyncio.to_thread(backend.managed, one.id)
        return made[-count:]

    yield start
    for one in made:
        one.client.stop_channels()


async def test_a_backend_killed_amid_turns_costs_no_cell_and_the_next_one_knows_all(
    backend: Backend, people: Callable[[int], Any], short_tmp: Path
):
    flag = str(short_tmp / "flag")
    first, second, idle = await people(3)
    await idle.run("held = bytearray(b'x') * (96 << 20)")
    cells = [
        one.client.execute(COMPUTES.format(mebibytes=size, flag=flag)) for one, size in ((first, 64), (second, 32))
    ]
    with Client(backend.socket) as client:
        client.act("priority", first.id, "high")
        client.act("priority", idle.id, "low")
        client.act("pinned", idle.id, "true")
    await asyncio.to_thread(
        wait_for, lambda: _all_settled(backend, first, second, idle), "turns to alternate, bytes to be known"
    )
    before = {row["id"]: row for row in backend.state()["sessions"]}
    backend.kill()
    await asyncio.to_thread(backend.restart)
    began = time.monotonic()
    after = await asyncio.to_thread(wait_for, lambda: _as_before(backend, before), "the new backend to know all again")
    took_s = time.monotonic() - began
    print(f"known again after {took_s:.2f} s")
    assert after.keys() == before.keys()
    Path(flag).touch()
    for one, cell in zip((first, second), cells, strict=True):
        reply = await one.reply(cell)
        assert reply["status"] == "ok", reply
        await one.printed(cell, "end")
    assert (await idle.run("1 + 1"))["status"] == "ok"


def _all_settled(backend: Backend, first: Person, second: Person, idle: Person) -> bool:
    """An interpreter with ipykernel has some 50 MiB, and what its cell holds beside."""
    rows = {row["id"]: row for row in backend.state()["sessions"]}
    held = {one: rows[one.id]["persistent_bytes"] >> 20 for one in (first, second, idle)}
    known = held[first] > 64 + 40 and held[second] > 32 + 40 and held[idle] > 96 + 40
    return known and all(rows[one.id]["turns"] >= 2 for one in (first, second))


def _as_before(backend: Backend, before: dict[str, Any]) -> dict[str, Any] | None:
    """The rows by id, once they have the bytes and what people set; what a kernel allocates meanwhile is little."""
    rows = {row["id"]: row for row in backend.state()["sessions"]}
    if rows.keys() != before.keys():
        return None
    for id, row in rows.items():
        if any(row[name] != before[id][name] for name in ("priority", "pinned", "incarnation", "name")):
            return None
        if abs(row["persistent_bytes"] - before[id]["persistent_bytes"]) > (16 << 20):
            return None
    return rows


async def test_a_backend_of_another_protocol_leaves_kernels_plain_and_says_so_until_it_is_replaced(
    backend: Backend, people: Callable[[int], Any], kernels: Kernels, caplog: pytest.LogCaptureFixture
):
    (one,) = await people(1)
    backend.kill()
    other = _speaking(backend, (7, 9))
    try:
        await asyncio.to_thread(wait_for, lambda: "[7, 9]" in caplog.text, "the log to say which versions are spoken")
        assert (await one.run(WANT.replace("50_000_000", "1_000_000")))["status"] == "ok"
    finally:
        other.kill()
        other.wait(PATIENCE_S)
    backend.restart()
    assert (await asyncio.to_thread(backend.managed, one.id))["incarnation"] == 1


async def test_a_backend_that_speaks_more_versions_is_spoken_to_in_ours(backend: Backend, people: Callable[[int], Any]):
    (one,) = await people(1)
    backend.kill()
    newer = _speaking(backend, (1, 4))
    try:
        await asyncio.to_thread(wait_for, backend.answers, "the newer backend")
        await asyncio.to_thread(backend.managed, one.id)
        assert (await one.run(WANT.replace("50_000_000", "1_000_000")))["status"] == "ok"
        assert (backend.session(one.id) or {})["turns"] >= 1
    finally:
        newer.terminate()
        newer.wait(PATIENCE_S)


async def test_a_kernel_stopped_in_its_turn_is_told_of_and_goes_on_when_it_is_continued(
    backend: Backend, people: Callable[[int], Any], short_tmp: Path
):
    flag = str(short_tmp / "flag")
    stopped, waits = await people(2)
    cell = stopped.client.execute(COMPUTES.format(mebibytes=1, flag=flag))
    await stopped.printed(cell, "begun")
    # Its iterations are short, so it gets seconds to end one, and not the minute of a session that nothing is known of.
    await asyncio.to_thread(wait_for, lambda: (backend.session(stopped.id) or {}).get("iterations"), "iterations")
    pid = stopped.kernel.provisioner.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        other = waits.client.execute("for i in range(2_000_000): i * i")
        told = await asyncio.to_thread(wait_for, lambda: _told(backend, waits.id), "the wait's reason")
        assert told["behind"] == stopped.id
        # Counted out in time, whatever it does, and the other one runs.
        assert (await _long_reply(waits, other))["status"] == "ok"
        assert backend.session(stopped.id) is not None
    finally:
        os.kill(pid, signal.SIGCONT)
    Path(flag).touch()
    assert (await stopped.reply(cell))["status"] == "ok"
    assert (await waits.run("1 + 1"))["status"] == "ok"
    await asyncio.to_thread(
        wait_for, lambda: (backend.session(stopped.id) or {}).get("state") == "holding", "its turn to be over"
    )


def _told(backend: Backend, id: str) -> dict[str, Any] | None:
    reason = (backend.session(id) or {}).get("reason")
    return reason if reason is not None and "come to no boundary for more than" in reason["text"] else None


async def _long_reply(person: Person, request: str) -> dict[str, Any]:
    """A reply that may take as long as the escalation of a session that nothing is known of."""
    for _ in range(4):
        try:
            return await person.reply(request)
        except Exception as error:  # queue.Empty
            if type(error).__name__ != "Empty":
                raise
    raise AssertionError("the waiting cell never ran")


async def test_a_forked_child_that_outlives_its_kernel_keeps_no_session_and_no_turn(
    backend: Backend, people: Callable[[int], Any]
):
    forks, other = await people(2)
    await forks.run("import os, time\nfor i in range(2_000_000): i * i")
    shown = await forks.client.execute_interactive(
        "",
        user_expressions={"child": "os.fork() or (time.sleep(600), os._exit(0))"},
        output_hook=lambda _: None,
        timeout=PATIENCE_S,
    )
    child = int(shown["content"]["user_expressions"]["child"]["data"]["text/plain"])
    pid = forks.kernel.provisioner.pid
    holds = forks.client.execute(HOLD)
    await forks.printed(holds, "holds")
    try:
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(ended, pid)
        # The turn of the dead is free at once, its bytes when its child has gone too.
        assert (await other.run("for i in range(2_000_000): i * i"))["status"] == "ok"
        assert (backend.session(other.id) or {})["turns"] >= 1
    finally:
        with contextlib.suppress(ProcessLookupError):  # whoever restarts the kernel ends its process group
            os.kill(child, signal.SIGKILL)


async def test_an_embedded_kernel_is_left_alone(backend: Backend, short_tmp: Path):
    connection = short_tmp / "embedded.json"
    process = _embedding(connection, backend)
    try:
        await asyncio.to_thread(wait_for, lambda: _written(connection), "the connection file")
        client = AsyncKernelClient()
        client.load_connection_info(json.loads(connection.read_text()))
        client.start_channels()
        await client.wait_for_ready(timeout=PATIENCE_S)
        looks = {"v": "mine, [n for n in __import__('sys').modules if 'salus' in n]"}
        reply: Any = await client.execute_interactive("", user_expressions=looks, timeout=PATIENCE_S)
        assert reply["content"]["user_expressions"]["v"]["data"]["text/plain"] == "(42, [])"
        assert backend.state()["sessions"] == []
        client.stop_channels()
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def _written(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text()))
    except (OSError, ValueError):
        return False

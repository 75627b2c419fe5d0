"""What we ask a kernel ourselves takes nothing from the clients that are there, or come while we ask."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import AsyncKernelManager

from jupyter_salus.manager.offer import offer
from jupyter_salus.manager.readiness import answers
from tests.manager.running import PATIENCE_S, wait_for


async def _replied(client: Any, request: str) -> str:
    while True:
        reply = await client.get_shell_msg(timeout=PATIENCE_S)
        if reply["parent_header"]["msg_id"] == request:
            return str(reply["content"]["status"])


def _open() -> int:
    """How many descriptors this process holds; sockets are closed by a thread of theirs, a little later."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", ["python3", "xpython"])
async def test_a_kernels_client_is_answered_still_while_and_after_we_ask_the_kernel_something(name: str) -> None:
    """ipykernel gives what is meant for one peer to a later one of the same name, xeus refuses the later one for good."""
    manager = AsyncKernelManager(kernel_name=name)
    try:
        await manager.start_kernel()
    except NoSuchKernel:
        pytest.skip("xeus-python isn't installed: it has no wheel for this Python or machine")
    asking = asyncio.ensure_future(offer(manager, {}))  # whatever comes of it: there is no backend
    client = manager.client()
    client.start_channels()
    try:
        for number in range(3):
            assert await _replied(client, client.execute(f"x = {number}")) == "ok"
            assert await answers(manager, PATIENCE_S)
            said = await offer(manager, {})
        assert said == await asking, "the same each time"
        held = _open()
        for _ in range(3):
            assert await answers(manager, PATIENCE_S)
            await offer(manager, {})
        await asyncio.to_thread(wait_for, lambda: _open() <= held, "the sockets of our questions to be closed")
        assert name == "python3" or said == "it isn't ipykernel but xeus-python"
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)

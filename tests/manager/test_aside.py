"""What we ask a kernel ourselves takes nothing from the clients that are there."""

from __future__ import annotations

from jupyter_client.manager import AsyncKernelManager

from jupyter_salus.manager.offer import offer
from jupyter_salus.manager.readiness import answers
from tests.manager.running import PATIENCE_S


async def test_a_kernels_client_is_answered_still_after_we_asked_the_kernel_something() -> None:
    manager = AsyncKernelManager()
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=PATIENCE_S)
        for number in range(4):
            assert await answers(manager, PATIENCE_S)
            await offer(manager, {})  # whatever it says: there is no backend
            reply = await client.execute_interactive(f"x = {number}", timeout=PATIENCE_S)
            assert reply["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)

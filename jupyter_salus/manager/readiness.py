"""Whether a kernel's process can take an interrupt yet.

A SIGINT that arrives while the interpreter is still importing kills the kernel, so one that is asked for early waits until
the kernel answers on its control channel, whose thread runs once the kernel handles signals.
"""

from __future__ import annotations

from jupyter_client.manager import KernelManager

from .aside import client_beside


async def answers(manager: KernelManager, patience_s: float) -> bool:
    """Whether the kernel answers on its control channel within `patience_s` seconds."""
    client = client_beside(manager)
    try:
        client.start_channels(shell=False, iopub=False, stdin=False, hb=False, control=True)
        client.control_channel.send(client.session.msg("kernel_info_request", {}))
        return bool(await client.control_channel.socket.poll(int(1000 * patience_s)))
    finally:
        client.stop_channels()

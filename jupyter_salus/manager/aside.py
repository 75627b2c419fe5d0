"""A client of our own at a kernel, beside those of its users and never in the place of one.

A kernel's sockets know a peer by its identity, and a client's is that of its session. All clients of one KernelManager
have the manager's session, so a second one takes over what is meant for the first: a notebook's client, nbclient's say,
would hear nothing any more. So ours has a session of its own, with the same key.
"""

from __future__ import annotations

import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.session import new_id


def client_beside(manager: KernelManager) -> AsyncKernelClient:
    """A client that no other one notices; the caller starts its channels and stops them."""
    session = manager.session.clone()
    session.session = new_id()
    client: AsyncKernelClient = manager.client(  # type: ignore[assignment]
        context=zmq.asyncio.Context(manager.context), session=session
    )
    return client

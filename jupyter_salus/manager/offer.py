"""Offering the guest to a Python kernel that is running already: one silent execute_request, before anything else is run.

For kernels behind a wrapper script, and for a Python that ignores its environment. The request leaves no trace: it is
silent, stores no history and counts no execution; what it runs has a namespace of its own. A kernel that says that it is
another one than ipykernel is only asked what it is, as each front end asks it: nothing is executed in it.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Mapping
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import KernelManager

from .aside import client_beside
from .injection import BOOT_DIRECTORY, BOOT_MODULE

#: What a kernel has to come up and to answer, in seconds.
START_S = 120.0
ANSWER_S = 30.0

#: How a refusal begins that only says that the kernel was busy.
UNANSWERED = "it didn't answer"

#: What ipykernel, and what derives from it, says of itself in its `kernel_info_reply`.
IPYKERNEL = "ipython"

_SOURCE = """
said = "it isn't an IPython kernel"
try:
    import os, sys
    from IPython import get_ipython
    guest = sys.modules.get("_jupyter_salus.guest")
    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if guest is not None and guest.running() is not None:
        said = "managed"
    elif kernel is not None and any(c.__module__.split(".")[0] == "ipykernel" for c in type(kernel).__mro__):
        os.environ.update(variables)
        sys.path.insert(0, directory)
        __import__(module).load_ipython_extension(shell)
        said = "managed"
except Exception as error:
    said = "the guest didn't start: %s: %s" % (type(error).__name__, error)
"""


async def offer(manager: KernelManager, variables: Mapping[str, str]) -> str | None:
    """Have the kernel load the guest. None: it has; else why not, in words. Never raises but when cancelled."""
    client = client_beside(manager)
    try:
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
        told = await _answer(client, client.kernel_info(), START_S)
        if told is None:
            return f"{UNANSWERED} within {START_S:g} s of its start"
        if told.get("implementation") != IPYKERNEL:
            return f"it isn't ipykernel but {told.get('implementation') or 'one that has no name'}"
        request = client.execute(
            "", silent=True, store_history=False, user_expressions={"salus": _expression(variables)}, allow_stdin=False
        )
        reply = await _answer(client, request, ANSWER_S)
    finally:
        client.stop_channels()
    if reply is None:
        return f"{UNANSWERED} the guest's offer within {ANSWER_S:g} s"
    said = _said(reply)
    return None if said == "managed" else said


def _expression(variables: Mapping[str, str]) -> str:
    scope = {"variables": dict(variables), "directory": BOOT_DIRECTORY, "module": BOOT_MODULE}
    return f"(lambda scope: (exec({_SOURCE!r}, scope), scope['said'])[1])({scope!r})"


def _said(reply: Mapping[str, Any]) -> str:
    shown = (reply.get("user_expressions") or {}).get("salus") or {}
    try:
        return str(ast.literal_eval(shown["data"]["text/plain"]))
    except (KeyError, TypeError, ValueError, SyntaxError):
        return "it isn't ipykernel: it can't be asked to load the guest"


async def _answer(client: AsyncKernelClient, request: str, patience_s: float) -> dict[str, Any] | None:
    """The content of the reply to `request`, or None if it doesn't come in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while (left := deadline - loop.time()) > 0:
        if not await client.shell_channel.socket.poll(int(1000 * left)):
            return None
        reply = await client.get_shell_msg(timeout=left)
        if (reply["parent_header"] or {}).get("msg_id") == request:
            content: dict[str, Any] = reply["content"]
            return content
    return None

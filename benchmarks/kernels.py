"""Kernels for the measurements: with jupyter_salus and without, talked to as a notebook talks to them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from jupyter_client.manager import AsyncKernelManager

from jupyter_salus.manager import NotebookKernelManager

#: One thread for matrix products, so that two kernels on few cores measure turns and not one another's spinning.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Kernel:
    """A started kernel; `value` executes a cell and reads one of its variables."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client

    async def value(self, code: str, name: str) -> Any:
        """Run `code`, which must not fail, and return the JSON value of the variable `name`."""
        reply = await self.client.execute_interactive(
            code,
            user_expressions={"value": f"__import__('json').dumps({name})"},
            timeout=600,
            output_hook=lambda _: None,
        )
        content = reply["content"]
        if content["status"] != "ok":
            raise RuntimeError(f"cannot measure: the cell failed with {content['ename']}: {content['evalue']}")
        text = content["user_expressions"]["value"]["data"]["text/plain"]
        return json.loads(text[1:-1])


@asynccontextmanager
async def kernel(socket: str | None, name: str) -> AsyncIterator[Kernel]:
    """A kernel that is a session of the backend at `socket`, or a plain one without."""
    import os

    if socket is None:
        manager: Any = AsyncKernelManager()
    else:
        manager = NotebookKernelManager(salus_socket=socket, salus_name=name)
    await manager.start_kernel(env={**os.environ, **ENVIRONMENT}, stderr=-3)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=120)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

"""A real backend on the host device, and real kernels in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from jupyter_salus.cli.own_backend import own_backend
from jupyter_salus.manager.link import close_links
from tests.e2e.notebooks import Lane


@pytest.fixture
async def lane(short_tmp: Path) -> AsyncIterator[Callable[..., Awaitable[Lane]]]:
    """`await lane("--capacity=1GiB")`: a backend with these options, ended with its kernels after the test."""
    async with AsyncExitStack() as stack:

        async def serve(*options: str) -> Lane:
            socket = stack.enter_context(own_backend(["--device=host", *options]))
            made = Lane(short_tmp, socket)
            stack.push_async_callback(made.end)
            return made

        yield serve
    close_links()

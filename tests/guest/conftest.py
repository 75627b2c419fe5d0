"""Kernels and backends for the guest's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .kernels import Kernel
from .scripted import ScriptedBackend


@pytest.fixture
def backend(short_tmp: Path) -> Iterator[ScriptedBackend]:
    """A scripted backend that grants at once; set `generous = False` to grant by hand."""
    made = ScriptedBackend(short_tmp / "b.sock")
    yield made
    made.stop()


@pytest.fixture
def start_kernel() -> Iterator[Callable[..., Kernel]]:
    """Starts kernels that end with the test."""
    kernels: list[Kernel] = []

    def start(*args: Any, **kwargs: Any) -> Kernel:
        kernel = Kernel(*args, **kwargs)
        kernels.append(kernel)
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(backend: ScriptedBackend, start_kernel: Callable[..., Kernel]) -> Kernel:
    """A governed kernel whose guest has said hello."""
    made = start_kernel(backend.path)
    from jupyter_salus.protocol.messages import Hello

    backend.expect(Hello)
    return made

"""What a session is called, before and after the server knows a notebook for it."""

from __future__ import annotations

from typing import Any

from jupyter_salus.manager.names import Notebook, at_start, of_sessions


def test_at_start_the_path_is_relative_to_the_contents_directory():
    found = at_start(
        {"JPY_SESSION_NAME": "/home/a/notebooks/vision/train.ipynb"}, "/home/a/notebooks", "1234-5", "python3"
    )
    assert found == Notebook("train.ipynb", "vision/train.ipynb")


def test_a_notebook_outside_the_contents_directory_keeps_its_whole_path():
    found = at_start({"JPY_SESSION_NAME": "/other/train.ipynb"}, "/home/a/notebooks", "1234-5", "python3")
    assert found == Notebook("train.ipynb", "/other/train.ipynb")


def test_a_kernel_without_a_session_is_called_after_its_kernelspec():
    assert at_start({}, "/home/a", "12345678-90ab", "python3") == Notebook("python3 12345678")


class _Sessions:
    def __init__(self, *models: dict[str, Any]) -> None:
        self._models = list(models)

    def list_sessions(self) -> list[dict[str, Any]]:
        return self._models


async def test_a_notebook_wins_over_a_console_of_the_same_kernel():
    notebook = {"path": "a/train.ipynb", "name": "", "type": "notebook", "kernel": {"id": "k"}}
    console = {"path": "a/console-1", "name": "Console 1", "type": "console", "kernel": {"id": "k"}}
    for order in ([notebook, console], [console, notebook]):
        assert await of_sessions(_Sessions(*order)) == {"k": Notebook("train.ipynb", "a/train.ipynb")}


async def test_a_session_without_a_kernel_is_left_out():
    assert await of_sessions(_Sessions({"path": "x", "type": "notebook", "kernel": None})) == {}

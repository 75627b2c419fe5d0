"""Jupyter's own suite for kernels passes with a governed one, started by somebody who never heard of Salus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupyter_kernel_test
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from jupyter_salus.manager.link import close_links
from tests.manager.running import PATIENCE_S, Backend

SPEC = {
    # Without jedi, which reads much before it completes its first word.
    "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--IPCompleter.use_jedi=False"],
    "display_name": "suite",
    "language": "python",
    "metadata": {"kernel_provisioner": {"provisioner_name": "salus-provisioner"}},
}


@pytest.fixture(autouse=True)
def links_end() -> None:
    """The suite's kernel lives for all its tests, and so does its provisioner's link."""


class TestKernelSuite(jupyter_kernel_test.KernelTests):
    """One kernel for all its tests; by the provisioner that its kernelspec names."""

    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    code_page_something = "zip?"
    code_generate_error = "raise ValueError"
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_history_pattern = "1?2*"
    #: Not "range": there IPython calls its own session 0, by which name the suite doesn't know it.
    supported_history_operations = ("tail", "search")
    completion_samples = ({"text": "zi", "matches": {"zip"}},)
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2")
    invalid_code_samples = ("import = 7q",)
    #: One that takes a turn, and that the pattern finds.
    code_execute_result = ({"code": "1+2+0*sum(i for i in range(1_000_000))", "result": "3"},)
    code_display_data = (
        {"code": "from IPython.display import HTML, display; display(HTML('<b>1</b>'))", "mime": "text/html"},
    )

    @classmethod
    def setUpClass(cls) -> None:
        """The fixture below does this."""

    @classmethod
    def tearDownClass(cls) -> None:
        """And this."""

    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def governed(request: pytest.FixtureRequest, backend: Backend, tmp_path_factory: Any) -> Iterator[None]:
        """The suite's kernel, and its client as the suite calls them."""
        directory: Path = tmp_path_factory.mktemp("suite")
        (directory / "suite").mkdir()
        (directory / "suite" / "kernel.json").write_text(json.dumps(SPEC))
        specs = KernelSpecManager(kernel_dirs=[str(directory)])
        manager = KernelManager(kernel_name="suite", kernel_spec_manager=specs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_SALUS_SOCKET", backend.socket)
            manager.start_kernel()
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_S)
        request.cls.km, request.cls.kc = manager, client
        backend.managed(str(manager.kernel_id))
        yield
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        backend.without(str(manager.kernel_id))
        close_links()

"""What else people start kernels with, from its own package: Notebook 7, jupyter_scheduler, a kernel for bash."""

from __future__ import annotations

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from .conftest import CLEAN, run
from .serving import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CLEAN, reason="make test-wheel installs the packages that these start"),
]
PACKAGES = ("notebook>=7", "jupyter_scheduler", "bash_kernel")


@pytest.fixture(scope="module")
def companions(environment):
    """The environment with the wheel, and with these."""
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
    run(python, "-m", "bash_kernel.install", "--sys-prefix")
    return environment


def test_notebook_7_loads_the_extension_and_bash_kernels_are_shown_as_not_managed(companions, short_tmp):
    with Server(companions, short_tmp, "notebook") as server:
        assert server.remote_entry("tree")
        python = server.post("api/kernels", name="python3")["id"]
        bash = server.post("api/kernels", name="bash")["id"]
        server.until(lambda: server.governs(python), "the Python kernel is a session")
        server.until(lambda: bash in server.sessions(), "the bash kernel is shown")
        row = server.sessions()[bash]
        assert not row["managed"]
        assert "bash" in row["unmanaged_reason"]


def test_jobs_of_jupyter_scheduler_are_sessions(companions, short_tmp):
    with Server(
        companions,
        short_tmp,
        "jupyterlab",
        JUPYTER_DEFAULT_PROVISIONER_NAME="salus-provisioner",
        PATH=f"{companions / 'bin'}:/usr/bin:/bin",
    ) as server:
        # It goes on until the test has seen it.
        code = "import os\nwhile not os.path.exists({!r}): sum(range(100_000))".format(str(short_tmp / "seen"))
        notebook = new_notebook(cells=[new_code_cell(code)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, server.root / "job.ipynb")
        (place,) = server.get("scheduler/runtime_environments").json()
        job = server.post(
            "scheduler/jobs",
            name="job",
            input_uri="job.ipynb",
            runtime_environment_name=place["name"],
            output_formats=["ipynb"],
        )["job_id"]
        server.until(lambda: any(row["turns"] for row in server.sessions().values()), "the job has a turn")
        (short_tmp / "seen").touch()
        ended = ("COMPLETED", "FAILED", "STOPPED")
        server.until(lambda: server.get(f"scheduler/jobs/{job}").json()["status"] in ended, "the job has ended")
        assert server.get(f"scheduler/jobs/{job}").json()["status"] == "COMPLETED"

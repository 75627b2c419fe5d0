"""The examples at the same time, as `make demo` runs them, with fewer epochs and shorter pauses."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from tests.e2e.notebooks import parameters

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="the examples need scikit-learn"),
]


def meet(path: Path, folder: Path, all_of_them: list[str], after: int) -> None:
    """Add a cell in which the notebook waits until all have come as far: imports take differently long."""
    notebook = nbformat.read(path, as_version=4)
    cells = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    code = (
        "import pathlib, time\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        f"(folder / 'met-{path.stem}').touch()\n"
        f"while not all((folder / f'met-{{name}}').exists() for name in {all_of_them!r}): time.sleep(0.05)"
    )
    notebook.cells.insert(cells[after] + 1, new_code_cell(code))
    nbformat.write(notebook, path)


@pytest.mark.timeout(300)  # the import of TensorFlow alone takes 10 s of a whole core
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="one of the examples needs TensorFlow")
def test_the_examples_run_at_the_same_time_in_turns_and_the_interactive_one_hardly_waits(tmp_path):
    names = ["keras_digits", "numpy_digits", "interactive_digits"]
    for name in names:
        shutil.copy(EXAMPLES / f"{name}.ipynb", tmp_path)
    parameters(tmp_path / "keras_digits.ipynb", EPOCHS=3, SEED=7)
    parameters(tmp_path / "numpy_digits.ipynb", EPOCHS=3, SEED=11)
    parameters(tmp_path / "interactive_digits.ipynb", PAUSE=0.3, SEED=3)
    for name in names:
        meet(tmp_path / f"{name}.ipynb", tmp_path, names, after=1)

    line = [sys.executable, "-m", "jupyter_salus.cli", "run", "--device=host", "--json", "--output-dir=out"]
    done = subprocess.run(
        [*line, *(f"{name}.ipynb" for name in names)],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    rows = {Path(one["notebook"]).stem: one for one in json.loads(done.stdout)["notebooks"]}
    for name in ("keras_digits", "numpy_digits"):
        assert rows[name]["turns"] > 1
        assert rows[name]["iterations"] > 50
    waited = rows["interactive_digits"]["waited_s"] / max(1, rows["interactive_digits"]["turns"])
    assert waited < 0.25 * min(rows[name]["used_s"] for name in ("keras_digits", "numpy_digits"))
    executed = nbformat.read(tmp_path / "out" / "keras_digits.ipynb", as_version=4)
    assert any("accuracy" in output.get("text", "") for cell in executed.cells for output in cell.get("outputs", []))

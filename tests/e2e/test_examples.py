"""The examples at the same time, as `make demo` runs them, until the interactive one is through; each logs its iterations."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from jupyter_salus.cli.own_backend import own_backend
from jupyter_salus.protocol.client import Client
from tests.e2e.notebooks import parameters
from tests.e2e.timeline import Timeline, Wait, timeline_at

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TRAININGS = ("keras_digits", "numpy_digits")
INTERACTIVE = "interactive_digits"
#: Device time that goes first, in seconds; less than the credit, so that a slow machine doesn't use it up unseen.
CREDITED_S = 1.5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="the examples need scikit-learn"),
]


class Example:
    """A copy of an example, changed before it runs: parameters, cells between its own, a log of its iterations."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f"{name}.ipynb"
        shutil.copy(EXAMPLES / self.path.name, folder)
        self.log = folder / f"{name}.log"

    def parameters(self, **values: object) -> None:
        parameters(self.path, **values)

    def insert(self, after: int, code: str) -> None:
        """Add a cell after so many of the notebook's code cells."""
        notebook = nbformat.read(self.path, as_version=4)
        cells = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        notebook.cells.insert(cells[after - 1] + 1, new_code_cell(code))
        nbformat.write(notebook, self.path)

    def repeat(self, first: int, last: int, times: int) -> None:
        """Have some neighbouring code cells, counted from 1, so many times more."""
        notebook = nbformat.read(self.path, as_version=4)
        cells = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        sources = [notebook.cells[index].source for index in cells[first - 1 : last]] * times
        notebook.cells[cells[last - 1] + 1 : cells[last - 1] + 1] = map(new_code_cell, sources)
        nbformat.write(notebook, self.path)

    def replace(self, pattern: str, by: str, count: int = 1) -> None:
        """Change code by a regular expression, which must be there so often."""
        notebook = nbformat.read(self.path, as_version=4)
        found = 0
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source, times = re.subn(pattern, by, cell.source, flags=re.MULTILINE)
                found += times
        assert found == count, f"{pattern!r} is {found} times in {self.path.name}"
        nbformat.write(notebook, self.path)

    def iterations(self) -> list[tuple[float, float]]:
        """Start and end of each iteration that it logged, by the monotonic clock."""
        return [(float(start), float(end)) for start, end in map(str.split, self.log.read_text().splitlines())]


@pytest.fixture
def examples(tmp_path: Path) -> dict[str, Example]:
    """The three, which begin their work together, log it, and train until the interactive one is through."""
    made = {name: Example(name, tmp_path) for name in (*TRAININGS, INTERACTIVE)}
    start = "import os, time\nfolder = {folder!r}\nlog = open({log!r}, 'w', buffering=1)\n"
    # Imports take differently long: who has come so far waits for the others.
    meet = (
        "open(f'{{folder}}/met-{name}', 'w').close()\n"
        f"while not all(os.path.exists(f'{{{{folder}}}}/met-{{{{name}}}}') for name in {[*made]!r}): time.sleep(0.05)"
    )
    keras, numpy, interactive = (made[name] for name in (*TRAININGS, INTERACTIVE))
    keras.parameters(EPOCHS=10_000, SEED=7)
    keras.insert(3, "model.fit(x_train[:32], y_train[:32], verbose=0)\n")
    for name, one in made.items():
        # Keras has its model by then, and has made its training function in a first step.
        one.insert(
            4 if name == "keras_digits" else 2, (start + meet).format(folder=str(tmp_path), log=str(one.log), name=name)
        )
    keras.replace(r"^history = ", f"{_KERAS_LOG}\n\\g<0>")
    keras.replace(r"epochs=EPOCHS, batch_size=32, verbose=0", r"\g<0>, callbacks=[Log()]")
    numpy.parameters(EPOCHS=10_000, SEED=11)
    numpy.replace(r"^for epoch in range\(EPOCHS\):$", r"\g<0>\n    if os.path.exists(f'{folder}/through'): break")
    _log_loop(numpy, r"for batch in jupyter_salus\.iterations\(batches\(\)\):", lines=1)
    interactive.parameters(PAUSE=0.2, SEED=3)
    interactive.replace(r"range\(20\)", "range(60)")  # long enough on a fast machine, too, to want the device
    _log_loop(interactive, r"for _ in range\(60\):", lines=1)
    interactive.repeat(5, 6, times=4)
    _log_loop(interactive, r"for part in np\.array_split.*:", lines=3)
    _log_loop(interactive, r"for _ in jupyter_salus\.iterations\(range\(60\)\):", lines=2)
    return made


#: The end of a batch; its beginning is the end of the one before, or of a wait between the two.
_KERAS_LOG = """
class Log(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        print(now, now, file=log)
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = os.path.exists(f'{folder}/through')
"""


def _log_loop(example: Example, head: str, lines: int) -> None:
    """Log each iteration of a loop with a body of so many lines."""
    body = rf"((?:\n[ ]+.*){{{lines}}})"
    started, ended = r"\n\1    started = time.monotonic()", r"\n\1    print(started, time.monotonic(), file=log)"
    example.replace(rf"^([ ]*)({head}){body}", rf"\1\2{started}\3{ended}")


@pytest.mark.timeout(300)  # the import of TensorFlow alone takes 10 s of a whole core
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="one of the examples needs TensorFlow")
def test_the_examples_take_turns_in_one_lane_and_interactive_cells_wait_for_one_iteration_alone(examples, tmp_path):
    interactive = examples[INTERACTIVE]
    notebook = nbformat.read(interactive.path, as_version=4)
    notebook.cells.append(new_code_cell("open(f'{folder}/through', 'w').close()"))
    nbformat.write(notebook, interactive.path)

    with own_backend(["--device=host"]) as socket:
        line = [sys.executable, "-m", "jupyter_salus.cli", "run", "--socket", socket, "--json", "--output-dir=out"]
        done = subprocess.run(
            [*line, *(str(one.path) for one in examples.values())],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        rows = {Path(one["notebook"]).stem: one for one in json.loads(done.stdout)["notebooks"]}
        sessions = {name: row["session"] for name, row in rows.items()}
        with Client(socket) as client:
            journal = Path(client.ask("journal")["path"])
        timeline = timeline_at(journal, lambda made: all(made.lost(one) is not None for one in sessions.values()))

    for name in TRAININGS:
        assert rows[name]["turns"] > 1
        assert rows[name]["iterations"] > 50
    assert lanes(timeline) == {"host/1"}
    executed = nbformat.read(tmp_path / "out" / "keras_digits.ipynb", as_version=4)
    assert any("accuracy" in output.get("text", "") for cell in executed.cells for output in cell.get("outputs", []))

    waits = [one for one in timeline.waits() if one.session == sessions[INTERACTIVE] and one.used_s < CREDITED_S]
    contended = [one for one in waits if one.holder in sessions.values()]
    assert len(contended) >= 3
    for wait in contended:
        assert wait.granted is not None
        # It waited for the turn that was on, and for no second one; but a training has a credit to begin with as well.
        assert not [used for _, used in wait.overtaken_by if used >= timeline.config.credit_s]
        assert wait.revoked is not None and wait.revoked - wait.requested <= timeline.config.quantum_s + 1e-6
    # The same by the notebooks' own clocks: once the iteration in flight has ended it is the interactive one's turn within a
    # quantum, and what it takes to tell one another. The median: a single wait may meet a moment in which the machine ran
    # something else.
    late = [lateness(wait, examples) for wait in contended]
    assert statistics.median(after - telling for after, telling in late) <= timeline.config.quantum_s, late


def lanes(timeline: Timeline) -> set[str]:
    """The lanes in which turns were given."""
    return {lane for _, _, decisions in timeline.handled for one in decisions if (lane := getattr(one, "lane", None))}


def lateness(wait: Wait, examples: dict[str, Example]) -> tuple[float, float]:
    """Seconds from the end of the iteration that was on when the interactive notebook began to wait until it went on; and
    how many of them the telling takes: it asks, the holder is asked, the holder answers, it is told.

    The first and the last of these are seen with both ends' clocks; the other two are taken to be as long.
    """
    assert wait.granted is not None
    own = examples[INTERACTIVE].iterations()
    began = max((end for _, end in own if end <= wait.requested), default=wait.requested)
    went_on = min((start for start, _ in own if start >= wait.granted), default=wait.granted)
    others = [end for name in TRAININGS for _, end in examples[name].iterations() if began <= end <= went_on]
    return went_on - min(others, default=began), 2 * (wait.requested - began + went_on - wait.granted)

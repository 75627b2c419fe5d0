"""`jupyter salus run`: what it executes, refuses, writes and prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from jupyter_salus.cli import main

from .conftest import answer

pytestmark = pytest.mark.slow

OWN = ("run", "--device", "host", "--quiet")


def by_name(done: subprocess.CompletedProcess[str]) -> dict[str, dict]:
    return {Path(one["notebook"]).name: one for one in answer(done)["notebooks"]}


def test_one_failing_notebook_is_named_with_its_cell_and_the_others_finish(salus, notebook, tmp_path):
    good = notebook("good", "6 * 7")
    bad = notebook("bad", "x = 1", "x / 0", "never = 1")
    dies = notebook("dies", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    no_json = tmp_path / "garbage.ipynb"
    no_json.write_text("not a notebook")

    done = salus(*OWN, "--output-dir", "out", "--json", good, bad, dies, no_json, "missing.ipynb")

    assert done.returncode == 1, done.stderr
    found = by_name(done)
    assert {name: one["status"] for name, one in found.items()} == {
        "good.ipynb": "done",
        "bad.ipynb": "failed",
        "dies.ipynb": "failed",
        "garbage.ipynb": "failed",
        "missing.ipynb": "failed",
    }
    assert "cell 2 of 3" in found["bad.ipynb"]["error"]
    assert "ZeroDivisionError" in found["bad.ipynb"]["error"]
    assert "x / 0" in found["bad.ipynb"]["error"]
    assert "died" in found["dies.ipynb"]["error"]
    assert "isn't a notebook" in found["garbage.ipynb"]["error"]
    assert "No such file" in found["missing.ipynb"]["error"]
    written = nbformat.read(tmp_path / "out" / "good.ipynb", as_version=4)
    assert written.cells[0].outputs[0]["data"]["text/plain"] == "42"
    assert (
        nbformat.read(tmp_path / "out" / "bad.ipynb", as_version=4).cells[1].outputs[0]["ename"] == "ZeroDivisionError"
    )


def test_the_table_has_each_notebook_the_progress_each_cell_and_the_folder_is_new(salus, notebook, tmp_path):
    done = salus("run", "--device", "host", notebook("one", "1", "2"), "--stagger", "0.2", notebook("two", "2"))
    assert done.returncode == 0, done.stderr
    for word in ("NOTEBOOK", "TURNS", "PEAK P", "one.ipynb", "two.ipynb"):
        assert word in done.stdout
    folders = list(tmp_path.glob("salus-run-*"))
    assert len(folders) == 1
    assert sorted(file.name for file in folders[0].iterdir()) == ["one.ipynb", "two.ipynb"]
    assert "one.ipynb: cell 2 of 2" in done.stderr
    assert "two.ipynb: done" in done.stderr


def test_where_no_notebook_is_there_nothing_is_left_behind(salus, tmp_path):
    done = salus(*OWN, "missing.ipynb")
    assert done.returncode == 1
    assert "Nothing was written" in done.stdout
    assert "cannot finish missing.ipynb: No such file or directory" in done.stdout
    assert (done.stdout + done.stderr).count("cannot finish missing.ipynb") == 1
    assert list(tmp_path.iterdir()) == []


def test_who_needs_more_than_the_capacity_is_told_with_the_figures(salus, notebook):
    held = f"held = b'x' * {80 << 20}\nn = 0\nwhile n < 3_000_000: n += 1"
    done = salus(*OWN, "--capacity=64MiB", notebook("large", held, "len(held)"))
    assert done.returncode == 0, done.stderr
    (note,) = [line for line in done.stdout.splitlines() if "at its peak" in line]
    assert note.startswith("large.ipynb held ")
    assert "device host has 64 MiB for all sessions together" in note


def refused(capsys: pytest.CaptureFixture[str], *line: object) -> str:
    """What the command says when it calls the line bad usage; nothing is started, so this process can do it."""
    assert main([str(word) for word in line]) == 2
    return capsys.readouterr().err


def test_nothing_is_written_over_without_being_told(capsys, notebook, tmp_path):
    path = notebook("kept", "1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept.ipynb").write_text("precious")
    assert "--overwrite" in refused(capsys, *OWN, "--output-dir", tmp_path / "out", path)
    assert (tmp_path / "out" / "kept.ipynb").read_text() == "precious"


def test_a_notebook_is_never_written_over_itself(capsys, notebook, tmp_path):
    path = notebook("self", "1")
    before = path.read_bytes()
    refused(capsys, *OWN, "--output-dir", tmp_path, "--overwrite", path)
    assert path.read_bytes() == before


def test_two_notebooks_of_one_name_are_bad_usage(capsys, notebook, tmp_path):
    path = notebook("same", "1")
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "same.ipynb"
    twin.write_bytes(path.read_bytes())
    assert "same.ipynb" in refused(capsys, *OWN, "--output-dir", tmp_path / "out", path, twin)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--capacity", "much"), ("--policy", "fastest"), ("--stagger", "-1"), ("--device", "tpu")]
)
def test_values_that_cannot_be_are_bad_usage_before_anything_starts(capsys, notebook, tmp_path, option, value):
    said = refused(capsys, "run", f"{option}={value}", "--output-dir", tmp_path / "out", notebook("any", "1"))
    assert value in said
    assert not (tmp_path / "out").exists()


def test_a_socket_and_a_backend_of_its_own_exclude_each_other(capsys, notebook, short_tmp):
    refused(capsys, "run", "--policy", "fifo", "--socket", short_tmp / "b.sock", notebook("any", "1"))


def test_without_options_the_sessions_are_those_of_the_shared_backend(salus, backend, notebook):
    done = salus("run", "--quiet", "--json", "--output-dir", "out", notebook("shared", "1"))
    assert done.returncode == 0, done.stderr
    texts = [entry["text"] for entry in answer(salus("journal", "--json"))["entries"]]
    assert any("shared.ipynb" in text for text in texts)


@pytest.mark.timeout(300)
def test_an_interrupt_ends_the_kernels_and_writes_how_far_it_came(notebook, tmp_path):
    path = notebook("long", "1", "import time\nprint('there', flush=True)\ntime.sleep(600)", "3")
    line = [
        sys.executable,
        "-m",
        "jupyter_salus.cli",
        "run",
        "--device",
        "host",
        "--json",
        "--output-dir",
        "out",
        str(path),
    ]
    process = subprocess.Popen(
        line, cwd=tmp_path, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for told in process.stderr:
            if "cell 2 of 3" in told:
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    (one,) = json.loads(out)["notebooks"]
    assert (one["status"], one["cells_executed"]) == ("failed", 1)
    assert "interrupted" in one["error"]
    assert (tmp_path / "out" / "long.ipynb").exists()

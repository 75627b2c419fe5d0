"""The line itself: help, exit codes, one clear sentence for what can't be done, a fast start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jupyter_salus.cli import main
from jupyter_salus.cli.table import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.strip()


def test_no_command_is_bad_usage_and_prints_the_help(capsys):
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


def test_an_unknown_command_is_bad_usage(capsys):
    assert main(["stat"]) == 2
    assert "stat" in capsys.readouterr().err


WRONG = {
    "backend": ("--bogus", "--device=tpu", "--policy", "stray"),
    "status": ("--bogus", "stray"),
    "top": ("--interval=never",),
    "run": ("", "--stagger=x"),
    "priority": ("", "any"),
    "yield": ("",),
    "policy": ("lottery",),
    "journal": ("--last=0",),
    "doctor": ("--bogus",),
    "simulate": ("--bogus", "--policy=lottery"),
}


@pytest.mark.parametrize(("name", "rest"), [(name, rest) for name, lines in WRONG.items() for rest in lines])
def test_a_wrong_line_is_told_in_one_form_by_every_command(capsys, name, rest):
    assert main([name, *rest.split()]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"jupyter salus {name}: ")
    assert line.endswith(f"(`jupyter salus {name} --help` lists its options)")


def test_a_wrong_line_is_an_object_where_json_was_asked_for(capsys):
    assert main(["status", "--json", "--bogus"]) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "bad_usage"


def test_a_journal_that_is_not_there_is_told_once(capsys, tmp_path):
    assert main(["simulate", "--replay", str(tmp_path / "none.jsonl")]) == 2
    assert capsys.readouterr().err.count("cannot replay") == 1


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("jupyter_salus ")


def test_without_a_backend_status_fails_with_the_way_to_start_one(capsys, short_tmp):
    assert main(["status", "--socket", str(short_tmp / "none.sock")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "jupyter salus backend" in said.err


def test_an_error_is_an_object_where_json_was_asked_for(capsys, short_tmp):
    assert main(["status", "--json", "--socket", str(short_tmp / "none.sock")]) == 1
    assert json.loads(capsys.readouterr().out)["code"] == "backend_gone"


def test_a_socket_path_that_is_too_long_is_bad_usage(capsys):
    assert main(["status", "--socket", "/tmp/" + "x" * 200]) == 2
    assert "107" in capsys.readouterr().err


def test_what_is_no_socket_is_told_and_nobody_is_sent_to_start_a_backend_there(capsys, tmp_path):
    assert main(["status", "--socket", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "it is a directory, and no socket" in said
    assert "jupyter salus backend" not in said


def test_a_word_that_is_no_policy_or_priority_is_answered_with_those_that_are(capsys):
    assert main(["policy", "lottery"]) == 2
    assert "cannot take 'lottery' as a policy: there are fair, fifo" in capsys.readouterr().err
    assert main(["priority", "high", "some.ipynb"]) == 2
    assert "cannot take 'some.ipynb' as a priority: there are high, normal, low" in capsys.readouterr().err


def test_a_run_that_cannot_begin_leaves_no_folder_and_keeps_one_that_was_there(
    capsys, tmp_path, short_tmp, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.ipynb").write_text("no notebook")
    (tmp_path / "mine").mkdir()
    assert main(["run", "bad.ipynb", "--socket", str(short_tmp / "none.sock")]) == 1
    assert main(["run", "bad.ipynb", "--output-dir=mine", "--socket", str(short_tmp / "none.sock")]) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bad.ipynb", "mine"]
    assert capsys.readouterr().out == ""


def test_help_imports_no_server_and_no_kernel_library():
    code = (
        "import sys; from jupyter_salus.cli import main; main(['--help']);"
        "print([name for name in ('tornado', 'zmq', 'nbclient', 'jupyter_server', 'traitlets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_script_is_jupyters_subcommand():
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "salus", "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "jupyter_salus")

"""`doctor`: what it says is so, also where things are not as they should be."""

from __future__ import annotations

import json
import os
import socket
import sys
import types
from pathlib import Path

import pytest

from jupyter_salus.cli import doctor, main
from jupyter_salus.cli.findings import Finding
from jupyter_salus.cli.limits import on_this_machine
from jupyter_salus.manager import SalusManagerMixin
from jupyter_salus.protocol.address import find, prepare
from jupyter_salus.protocol.client import Client


def backend_of(path: str | None = None) -> Finding:
    """What it says of the backend at an address."""
    return next(one for one in doctor._backend(path) if one.about in ("backend", "address") and one.text[0] != "/")


def test_where_nobody_listens_at_the_own_address_the_first_notebook_starts_one():
    assert backend_of() == Finding("backend", "ok", "none runs now; a server with jupyter_salus.Manager starts one")


def test_something_that_listens_and_is_no_backend_is_a_problem(monkeypatch):
    address = find(os.environ)
    prepare(address)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(address.path)
        silent.listen()
        monkeypatch.setattr(doctor, "Client", lambda path: Client(path, timeout=0.2))
        found = backend_of()
    assert found.level == "problem"
    assert "no answer within 0.2 s" in found.text


def test_a_configured_address_in_a_directory_that_is_missing_is_told_so(short_tmp):
    found = backend_of(str(short_tmp / "missing" / "b.sock"))
    assert found.level == "problem"
    assert f"its directory {short_tmp}/missing isn't there" in found.text


def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> Finding:
    (tmp_path / "jupyter_server_config.json").write_text(json.dumps({"ServerApp": {"kernel_manager_class": value}}))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    return doctor._manager_class()


def test_a_manager_built_on_ours_takes_turns_and_others_are_named(monkeypatch, tmp_path):
    theirs = types.ModuleType("theirs")
    theirs.Mixed = type("Mixed", (SalusManagerMixin,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "theirs", theirs)
    assert configured(monkeypatch, tmp_path, "jupyter_salus.Manager").level == "ok"
    assert configured(monkeypatch, tmp_path, "theirs.Mixed").level == "ok"
    other = configured(monkeypatch, tmp_path, "jupyter_server.services.kernels.kernelmanager.MappingKernelManager")
    assert (other.level, "don't take turns" in other.text) == ("note", True)


def test_a_sidebar_that_is_switched_off_is_told_with_the_file(monkeypatch, tmp_path):
    (tmp_path / "data" / "labextensions" / "jupyter-salus").mkdir(parents=True)
    (tmp_path / "data" / "labextensions" / "jupyter-salus" / "package.json").write_text("{}")
    (tmp_path / "config" / "labconfig").mkdir(parents=True)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    assert doctor._labextension().level == "ok"
    page = tmp_path / "config" / "labconfig" / "page_config.json"
    page.write_text(json.dumps({"disabledExtensions": {"jupyter-salus:panel": True}}))
    found = doctor._labextension()
    assert found.level == "note"
    assert str(page) in found.text


def test_what_limits_a_gpu_on_this_machine_is_told_with_what_it_changes(tmp_path):
    (tmp_path / "proc" / "17").mkdir(parents=True)
    (tmp_path / "proc" / "17" / "comm").write_text("nvidia-cuda-mps-control\n")
    (tmp_path / "proc" / "sys" / "kernel").mkdir(parents=True)
    (tmp_path / "proc" / "sys" / "kernel" / "osrelease").write_text("5.15.90.1-microsoft-standard-WSL2\n")
    mps, wsl = on_this_machine(tmp_path)
    assert (mps.name, mps.changes) == ("MPS", "contexts: one for all, figures: of all together")
    assert (wsl.name, wsl.changes) == ("WSL", "figures: totals only")


def test_the_guard_is_tried_and_not_only_looked_for(capsys):
    main(["doctor", "--json"])
    found = {one["about"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["loading the guest"]["level"] in ("ok", "note")
    assert found["guard"]["level"] in ("ok", "note")
    assert any(word in found["guard"]["text"] for word in ("loads", "start with it", "not built", "plain"))

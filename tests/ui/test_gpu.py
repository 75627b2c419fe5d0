"""The sidebar over a machine with a GPU: the stand-in driver, a real backend, the real guard in real kernels."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from jupyter_salus.native import build
from tests.gpu.machine import FRAMEWORK, MIB, Machine

from .lab import ROOT, Lab, Sidebar

#: Starts a kernel for a notebook and keeps it in the page.
START = """async name => {
  const session = await window.jupyterapp.serviceManager.sessions.startNew(
    { path: name, name, type: 'notebook', kernel: { name: 'python3' } });
  (window.kernels ??= {})[name] = session.kernel;
  await session.kernel.info;
}"""
#: Runs a cell to its end; the value of an expression after it, or what went wrong.
RUN = """async ([name, code, value]) => {
  const reply = await window.kernels[name].requestExecute({ code, user_expressions: { value } }).done;
  const told = reply.content.user_expressions?.value;
  return told?.status === 'ok' ? told.data['text/plain'] : JSON.stringify(reply.content);
}"""
#: Starts a cell that goes on.
BEGIN = "([name, code]) => { window.kernels[name].requestExecute({ code }); }"


@pytest.fixture(scope="module")
def machine(lab_folder: Path, isolated_run: Path) -> Iterator[Machine]:
    """One device of 256 MiB, and a backend that governs it."""
    if build.compiler() is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no C compiler on this machine, and CI must test the guard")
        pytest.skip("no C compiler on this machine: the guard can't be built")
    reasons: list[str] = []
    built = build.cached(Path(tempfile.gettempdir()) / f"jupyter-salus-native-{os.getuid()}", reasons.append)
    assert built is not None, reasons
    (lab_folder / "gpu").mkdir()
    machine = Machine(built, lab_folder / "gpu")
    machine.backend()
    yield machine
    machine.stop()


@pytest.fixture(scope="module")
def lab(lab_folder: Path, machine: Machine) -> Iterator[Lab]:
    environment = {
        **machine.environment,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(FRAMEWORK)]),
        "JUPYTER_SALUS_SOCKET": machine.socket,
    }
    folder = lab_folder / "lab"
    folder.mkdir()
    manager = "--ServerApp.kernel_manager_class=jupyter_salus.Manager"
    lab = Lab(folder, {"jupyter_salus": True}, extra=(manager,), env=environment)
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def lab_sidebar(lab: Lab, page: Page) -> Sidebar:
    return lab.open(page)


class Desk:
    """A test's notebooks."""

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page

    def start(self, name: str) -> None:
        self.page.evaluate(START, name)

    def run(self, name: str, code: str, value: str = "None") -> str:
        told: Any = self.page.evaluate(RUN, [name, code, value])
        return str(told)

    def begin(self, name: str, code: str) -> None:
        self.page.evaluate(BEGIN, [name, code])

    def close(self) -> None:
        for session in self.lab.request("GET", "api/sessions"):
            self.lab.request("DELETE", f"api/sessions/{session['id']}")


@pytest.fixture
def desk(lab: Lab, sidebar: Sidebar) -> Iterator[Desk]:
    desk = Desk(lab, sidebar.page)
    yield desk
    desk.close()
    expect(sidebar.panel.locator(".jp-Salus-session")).to_have_count(0)


def press(sidebar: Sidebar, name: str, button: str) -> None:
    row = sidebar.session(name)
    row.hover()
    row.get_by_role("button", name=button).click()


def test_evicted_and_restored_by_its_buttons_nothing_is_lost(sidebar: Sidebar, desk: Desk) -> None:
    desk.start("model.ipynb")
    before = desk.run("model.ipynb", "import tinyframe\nmodel = tinyframe.Tensor(96, 5)", "model.digest()")
    row = sidebar.session("model.ipynb")
    expect(row).to_have_attribute("data-state", "holding")
    press(sidebar, "model.ipynb", "Evict: move it to host memory")
    expect(row).to_have_attribute("data-state", "evicted")
    expect(row).to_contain_text(re.compile(r"Evicted for .*, in host memory"))
    evicted = re.compile(r"1 session is evicted: 0\.\d+ GiB in host memory")
    expect(sidebar.panel.locator(".jp-Salus-device")).to_contain_text(evicted)
    expect(sidebar.panel.locator(".jp-Salus-part.jp-mod-persistent")).to_have_count(0)
    # What the person asked for isn't told as news.
    expect(sidebar.toast("model.ipynb was moved")).to_have_count(0)
    press(sidebar, "model.ipynb", "Restore: bring it back to the device")
    expect(row).to_have_attribute("data-state", "holding")
    expect(sidebar.panel.locator(".jp-Salus-part.jp-mod-persistent")).to_have_count(1)
    assert desk.run("model.ipynb", "", "model.digest()") == before


def test_who_is_evicted_for_somebody_else_is_told_and_comes_back_by_itself(sidebar: Sidebar, desk: Desk) -> None:
    desk.start("early.ipynb")
    before = desk.run("early.ipynb", "import tinyframe\nmodel = tinyframe.Tensor(120, 5)", "model.digest()")
    expect(sidebar.session("early.ipynb")).to_have_attribute("data-state", "holding")
    desk.start("late.ipynb")
    assert desk.run("late.ipynb", "import tinyframe\nmodel = tinyframe.Tensor(160, 6)", "model.bytes") == str(160 * MIB)
    expect(sidebar.session("early.ipynb")).to_have_attribute("data-state", "evicted")
    expect(sidebar.toast("early.ipynb was moved to host memory")).to_be_visible()
    assert desk.run("early.ipynb", "", "model.digest()") == before
    expect(sidebar.session("early.ipynb")).to_have_attribute("data-state", "holding")
    expect(sidebar.session("late.ipynb")).to_have_attribute("data-state", "evicted")


def test_ephemeral_memory_is_shown_by_lane_and_other_programs_by_themselves(
    sidebar: Sidebar, desk: Desk, machine: Machine
) -> None:
    desk.start("train.ipynb")
    desk.begin("train.ipynb", "import tinyframe\ntinyframe.train(10**6, 16, 0.01, 48)")
    expect(sidebar.session("train.ipynb")).to_have_attribute("data-state", "running")
    expect(sidebar.panel.locator(".jp-Salus-part.jp-mod-ephemeral")).to_have_attribute(
        "title", re.compile(r"^Lane \d+: ephemeral 0\.\d+ GiB$")
    )
    foreign = machine.process("import tinyframe; t = tinyframe.Tensor(40); print(t.digest(), flush=True); input()")
    try:
        assert foreign.stdout is not None
        foreign.stdout.readline()
        expect(sidebar.panel.locator(".jp-Salus-part.jp-mod-foreign")).to_have_attribute(
            "title", re.compile(r"^Other programs: 0\.\d+ GiB$")
        )
    finally:
        foreign.communicate("\n")
    expect(sidebar.panel.locator(".jp-Salus-part.jp-mod-foreign")).to_have_count(0)

"""The sidebar in JupyterLab over the real server, a real backend and real kernels on the host device."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .lab import PATIENCE_S, Lab, Sidebar

#: Uses the processor in a loop until its file is there; its end is the test's to choose.
WORK = """
import os
def work(flag):
    total = 0
    while not os.path.exists(flag):
        for number in range(2000):
            total += number * number
    return total
work({flag!r})
"""

#: Runs a notebook's kernel from the page, as a console would; the notebook's own view isn't needed for a session.
START = """async ([name, code]) => {
  const sessions = window.jupyterapp.serviceManager.sessions;
  const session = await sessions.startNew({ path: name, name, type: 'notebook', kernel: { name: 'python3' } });
  session.kernel.requestExecute({ code });
  return session.id;
}"""


@pytest.fixture(scope="module")
def lab(lab_folder: Path, isolated_run: Path) -> Iterator[Lab]:
    """A server with the Manager; its backend, which outlives servers, is ended here."""
    lab = Lab(lab_folder, {"jupyter_salus": True}, extra=("--ServerApp.kernel_manager_class=jupyter_salus.Manager",))
    yield lab
    try:
        backend = Path(f"/proc/{lab.request('GET', 'salus/api/state')['backend']['pid']}")
    finally:
        lab.stop()
    os.kill(int(backend.name), signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while backend.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.fixture(scope="module")
def lab_sidebar(lab: Lab, page: Page) -> Sidebar:
    return lab.open(page)


class Notebooks:
    """Notebooks of a test: each runs until it is told to end."""

    def __init__(self, lab: Lab, page: Page, folder: Path) -> None:
        self.lab = lab
        self.page = page
        self.folder = folder
        self.sessions: list[str] = []

    def work(self, name: str) -> None:
        """Start a kernel for a notebook and a cell that works on."""
        code = WORK.format(flag=str(self.folder / f"{name}.end"))
        self.sessions.append(self.page.evaluate(START, [name, code]))

    def end(self, name: str) -> None:
        """Let its cell end."""
        (self.folder / f"{name}.end").touch()

    def close(self) -> None:
        """Shut all kernels of the server down."""
        for path in self.folder.parent.glob("*/*.end"):
            path.touch()
        for session in self.lab.request("GET", "api/sessions"):
            self.lab.request("DELETE", f"api/sessions/{session['id']}")


@pytest.fixture
def notebooks(lab: Lab, sidebar: Sidebar, short_tmp: Path) -> Iterator[Notebooks]:
    notebooks = Notebooks(lab, sidebar.page, short_tmp)
    yield notebooks
    notebooks.close()
    expect(sidebar.panel.locator(".jp-Salus-session")).to_have_count(0)


def choose_policy(sidebar: Sidebar, lab: Lab, policy: str, wait_until: Callable[..., None]) -> None:
    """By the panel's own select, as a person would."""
    sidebar.panel.get_by_label(re.compile("^Policy of")).select_option(policy)
    wait_until(
        lambda: [row["policy"] for row in lab.request("GET", "salus/api/state")["devices"]] == [policy],
        f"policy {policy}",
    )


def test_one_waits_for_the_other_with_its_reason_and_is_granted_its_turn(
    lab: Lab, sidebar: Sidebar, notebooks: Notebooks, wait_until: Callable[..., None]
) -> None:
    choose_policy(sidebar, lab, "fifo", wait_until)
    notebooks.work("first.ipynb")
    expect(sidebar.session("first.ipynb")).to_have_attribute("data-state", "running")
    notebooks.work("second.ipynb")
    second = sidebar.session("second.ipynb")
    expect(second).to_contain_text(re.compile("Waiting for .*, next in line"))
    expect(second.locator(".jp-Salus-reason")).to_contain_text("first.ipynb")
    expect(sidebar.holders()).to_have_text("first.ipynb")
    expect(sidebar.queue()).to_have_text(["second.ipynb"])
    notebooks.end("first.ipynb")
    expect(second).to_have_attribute("data-state", "running")
    expect(second.locator(".jp-Salus-reason")).to_have_count(0)
    expect(sidebar.session("first.ipynb")).to_have_attribute("data-state", "holding")


def test_a_higher_priority_changes_the_order(
    lab: Lab, sidebar: Sidebar, notebooks: Notebooks, wait_until: Callable[..., None]
) -> None:
    choose_policy(sidebar, lab, "priority", wait_until)
    notebooks.work("runs.ipynb")
    expect(sidebar.session("runs.ipynb")).to_have_attribute("data-state", "running")
    sidebar.session("runs.ipynb").locator("select").select_option("high")
    wait_until(lambda: priority_of(lab, "runs.ipynb") == "high", "the holder's priority")
    for name in ("early.ipynb", "late.ipynb"):
        notebooks.work(name)
        expect(sidebar.session(name)).to_contain_text("Waiting")
        sidebar.session(name).locator("select").select_option("low")
        wait_until(lambda name=name: priority_of(lab, name) == "low", f"the priority of {name}")
    expect(sidebar.session("early.ipynb")).to_contain_text("next in line")
    expect(sidebar.session("late.ipynb")).to_contain_text("2nd in line")
    queue = sidebar.queue()
    expect(queue).to_have_text(["early.ipynb", "late.ipynb"])
    sidebar.session("late.ipynb").locator("select").select_option("normal")
    expect(sidebar.session("late.ipynb")).to_contain_text("next in line")
    expect(sidebar.session("early.ipynb")).to_contain_text("2nd in line")
    expect(queue).to_have_text(["late.ipynb", "early.ipynb"])


def priority_of(lab: Lab, name: str) -> str:
    rows = lab.request("GET", "salus/api/state")["sessions"]
    return next(str(row["priority"]) for row in rows if row["name"] == name)


def test_a_waiting_cell_is_marked_in_its_notebook_toolbar_and_status_bar(
    lab: Lab, sidebar: Sidebar, notebooks: Notebooks, wait_until: Callable[..., None], screenshots: Path
) -> None:
    page = sidebar.page
    choose_policy(sidebar, lab, "fifo", wait_until)
    module = WORK.format(flag=str(notebooks.folder / "finetune.end")).replace("\nwork(", "\ntrain = lambda: work(")
    (lab.notebooks / "training.py").write_text(module)
    code = "from training import train\n\ntrain()"
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "## Train once more"}
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "mine",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": code,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    notebook = {"cells": [title, cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (lab.notebooks / "finetune.ipynb").write_text(json.dumps(notebook))
    notebooks.work("embed.ipynb")
    expect(sidebar.session("embed.ipynb")).to_have_attribute("data-state", "running")
    page.evaluate(
        "() => window.jupyterapp.commands.execute('docmanager:open', {path: 'finetune.ipynb'}).then(() => undefined)"
    )
    # A kernel that is still starting would take the cell, but isn't known to the panel yet.
    expect(sidebar.session("finetune.ipynb")).to_be_visible()
    page.evaluate(
        """async () => {
            const panel = window.jupyterapp.shell.currentWidget;
            await panel.context.ready;
            await panel.sessionContext.ready;
            panel.content.activeCellIndex = 1;
            void window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    expect(page.locator(".jp-Salus-cellMark")).to_be_visible()
    expect(page.locator(".jp-Salus-cellMark")).to_have_attribute("title", re.compile("embed.ipynb"))
    waiting = re.compile("Waiting for .*, next in line")
    expect(page.locator(".jp-Salus-chip.jp-mod-toolbar")).to_contain_text(waiting)
    expect(page.locator(".jp-Salus-chip.jp-mod-status")).to_contain_text(waiting)
    expect(page.locator(".jp-Salus-announcer")).to_contain_text("finetune.ipynb: Waiting")
    expect(sidebar.session("finetune.ipynb")).to_have_class(re.compile("jp-mod-current"))
    # Long enough for the line below the cell, too.
    expect(page.locator(".jp-Salus-chip.jp-mod-toolbar")).to_contain_text(re.compile(r"Waiting for ([3-9]|\d\d) s"))
    take_picture(sidebar, screenshots / "waiting.png")
    notebooks.end("embed.ipynb")
    expect(page.locator(".jp-Salus-chip.jp-mod-toolbar")).to_have_attribute("data-state", "running")
    expect(page.locator(".jp-Salus-cellMark")).to_have_count(0)
    (notebooks.folder / "finetune.end").touch()
    expect(page.locator(".jp-Salus-chip.jp-mod-toolbar")).to_have_attribute("data-state", "holding")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save().then(() => undefined)")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")


def take_picture(sidebar: Sidebar, path: Path) -> None:
    """The page as it is, as small as it can be and still show everything of it."""
    page = sidebar.page
    sidebar.widen(280)
    page.set_viewport_size({"width": 1100, "height": 560})
    page.mouse.move(900, 500)
    path.write_bytes(page.screenshot())
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_kernel_is_shut_down_from_its_row(sidebar: Sidebar, notebooks: Notebooks) -> None:
    notebooks.work("spare.ipynb")
    row = sidebar.session("spare.ipynb")
    expect(row).to_have_attribute("data-state", "running")
    row.hover()
    row.get_by_role("button", name="Shut down the kernel").click()
    sidebar.page.locator(".jp-Dialog").get_by_role("button", name="Shut down").click()
    expect(row).to_have_count(0)


def test_a_killed_backend_is_told_and_the_sidebar_recovers(
    lab: Lab, sidebar: Sidebar, notebooks: Notebooks, wait_until: Callable[..., None]
) -> None:
    page = sidebar.page
    notebooks.work("goes-on.ipynb")
    expect(sidebar.session("goes-on.ipynb")).to_have_attribute("data-state", "running")
    # The Manager starts another one within a second or two: what was shown meanwhile is kept here.
    page.evaluate(
        """() => {
            window.told = [];
            new MutationObserver(() => {
                const notice = document.querySelector('.jp-Salus-notice');
                if (notice) window.told.push(notice.textContent);
            }).observe(document.querySelector('#jupyter-salus-sidebar'), { childList: true, subtree: true });
        }"""
    )
    before = lab.request("GET", "salus/api/state")["backend"]["pid"]
    os.kill(before, signal.SIGKILL)
    page.wait_for_function("() => window.told.some(text => text.includes('No backend answers'))")

    def another() -> bool:
        try:
            return bool(lab.request("GET", "salus/api/state")["backend"]["pid"] != before)
        except OSError:
            return False  # 503 until another one answers

    wait_until(another, "another backend")
    expect(sidebar.notice()).to_have_count(0)
    expect(sidebar.session("goes-on.ipynb")).to_have_attribute("data-state", "running")

"""One browser, one JupyterLab and one page for each module: loading a page is what takes the time."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.conftest import RUN_MARK

from .lab import PATIENCE_MS, ROOT, Lab, Sidebar

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pages take seconds; the first test of a module also pays for its server."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(400))


def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    if os.environ.get("CI") == "true":
        pytest.fail("no chromium on the PATH, and CI must test the sidebar (Debian: apt-get install chromium)")
    pytest.skip("no chromium on the PATH (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def browser(isolated_run: Path) -> Iterator[Browser]:
    """Debian's Chromium, headless. Without the run's mark: its processes come and go as it likes, and end with it.

    Not for the session: as long as Playwright is there, no other event loop runs in this thread.
    """
    path = _chromium()
    environment: dict[str, str | float | bool] = {name: value for name, value in os.environ.items() if name != RUN_MARK}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=True, env=environment)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; what it logs as an error fails nothing, but is there to read."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    yield page
    context.close()


@pytest.fixture(scope="module")
def lab_folder() -> Iterator[Path]:
    """A folder with a short path: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go: into the docs where they are asked for, else into a folder of the run."""
    if os.environ.get("SALUS_SCREENSHOTS") == "1":
        folder = ROOT / "docs" / "images"
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    return tmp_path_factory.mktemp("screenshots")


class Stage:
    """The fixture server's state, as the test wants it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.state: dict[str, Any] = {}
        #: Grows over all tests of the module, so that no page takes a state for an older one.
        self._revision = 0

    def control(self, **what: Any) -> None:
        """Set what is answered."""
        self.lab.request("POST", "salus-test/control", what)

    def asked(self) -> list[dict[str, Any]]:
        """The requests that would have changed something."""
        asked: list[dict[str, Any]] = self.lab.request("GET", "salus-test/control")
        return asked

    def show(self, state: dict[str, Any], **more: Any) -> None:
        """Answer this state from now on, and tell of it by a whole event."""
        self._revision += 1
        self.state = {**state, "revision": self._revision}
        event = {**self.state, "previous_revision": 0, "removed_sessions": []}
        self.control(state=self.state, fault=None, refusal=None, asked=[], event=event, **more)

    def change(self, *rows: dict[str, Any], **lists: Any) -> None:
        """Change some sessions' rows (by id), and whole lists, by an event like the backend's."""
        before = self._revision
        self._revision += 1
        by_id = {row["id"]: row for row in rows}
        changed = [{**row, **by_id[row["id"]]} for row in self.state["sessions"] if row["id"] in by_id]
        new = {row["id"]: row for row in changed}
        sessions = [new.get(row["id"], row) for row in self.state["sessions"]]
        self.state = {**self.state, **lists, "sessions": sessions, "revision": self._revision}
        event = {
            "revision": self._revision,
            "previous_revision": before,
            "as_of": self.state["as_of"],
            "sessions": changed,
            "removed_sessions": [],
            **lists,
        }
        self.control(state=self.state, event=event)


def wire(name: str) -> dict[str, Any]:
    """An example of `tests/wire`."""
    body: dict[str, Any] = json.loads((ROOT / "tests" / "wire" / f"{name}.json").read_text())
    return body


def moved_to(now: float, body: Any) -> Any:
    """The example with its times such that it is of now."""
    shift = now - wire("state")["as_of"]
    times = {"as_of", "at", "started_at", "waiting_since", "state_since"}

    def moved(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: moved(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [moved(one) for one in value]
        return value + shift if key in times and value is not None else value

    return moved(body)


@pytest.fixture
def sidebar(lab_sidebar: Sidebar) -> Sidebar:
    """The module's sidebar, its toasts gone and its filter empty."""
    lab_sidebar.page.keyboard.press("Escape")
    lab_sidebar.page.evaluate("() => document.querySelectorAll('.Toastify__close-button').forEach(one => one.click())")
    return lab_sidebar

"""A JupyterLab server of a test's own, and a page of it in a browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.conftest import RUN_MARK

ROOT = Path(__file__).resolve().parents[2]
LABEXTENSION = ROOT / "jupyter_salus" / "labextension"
TOKEN = "ui"
#: What the page or the server may take, in milliseconds and seconds. Generous: the machine may be loaded.
PATIENCE_MS = 60_000
PATIENCE_S = 60.0

expect.set_options(timeout=PATIENCE_MS)


class Lab:
    """A running `jupyter lab` with the extension as built last.

    `extra` are further arguments for its command line; `base` is the path below which it serves, as behind a hub.
    """

    def __init__(
        self,
        folder: Path,
        extensions: Mapping[str, bool],
        extra: tuple[str, ...] = (),
        env: Mapping[str, str] = {},
        base: str = "",
    ) -> None:
        if not (LABEXTENSION / "dist" / "static" / "style.js").exists():
            raise FileNotFoundError(
                f"cannot test the sidebar: {LABEXTENSION}/dist isn't built; run `make labextension`"
            )
        self.folder = folder
        self.notebooks = folder / "notebooks"
        self.notebooks.mkdir()
        self.log = folder / "lab.log"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}{base}"
        self._configure(extensions)
        command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", "--expose-app-in-browser"]
        command += [
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.base_url={base}/",
            f"--ServerApp.root_dir={self.notebooks}",
        ]
        command += [f"--IdentityProvider.token={TOKEN}", "--LabApp.news_url=", "--ServerApp.disable_check_xsrf=False"]
        command += [f"--LabApp.extra_labextensions_path={folder / 'labextensions'}", *extra]
        # Without the run's mark: a server of many tests starts and ends processes when it likes, also in mid-test.
        environment = {name: value for name, value in os.environ.items() if name != RUN_MARK}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.notebooks, env={**environment, **self._env(), **env}, stdout=log, stderr=log
            )
        self._await_answer()

    def _env(self) -> dict[str, str]:
        folders = {
            "HOME": "home",
            "IPYTHONDIR": "ipython",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTER_SALUS_RUN_DIR": "run",
            "JUPYTER_SALUS_STATE_DIR": "state",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        for name in folders.values():
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        places = {name: str(self.folder / folder) for name, folder in folders.items()}
        path = os.pathsep.join([str(Path(__file__).parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
        return {**places, "PYTHONPATH": path.rstrip(os.pathsep)}

    def _configure(self, extensions: Mapping[str, bool]) -> None:
        config = self.folder / "config"
        (config / "labconfig").mkdir(parents=True)
        (config / "jupyter_server_config.json").write_text(
            json.dumps({"ServerApp": {"jpserver_extensions": dict(extensions)}})
        )
        # The question about Jupyter's news would lie over the page.
        news = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
        (config / "labconfig" / "page_config.json").write_text(json.dumps(news))
        (self.folder / "labextensions").mkdir()
        (self.folder / "labextensions" / "jupyter-salus").symlink_to(LABEXTENSION / "dist")

    def _await_answer(self) -> None:
        deadline = time.monotonic() + 2 * PATIENCE_S
        while True:
            try:
                self.request("GET", "api/status")
                return
            except (OSError, http.client.HTTPException) as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"cannot start JupyterLab:\n{self.log.read_text()[-4000:]}") from error
                time.sleep(0.1)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """A request of the REST interface with the token. Raises `urllib.error.HTTPError` for an error status."""
        request = urllib.request.Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            raise
        return json.loads(text) if text else None

    def stop(self) -> None:
        """End the server and wait for it; its kernels end with it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def open(self, page: Page) -> Sidebar:
        """Load the page and show the sidebar."""
        page.goto(f"{self.url}/lab?token={TOKEN}&reset", wait_until="domcontentloaded", timeout=2 * PATIENCE_MS)
        page.wait_for_function("() => window.jupyterapp?.shell?.activateById", timeout=2 * PATIENCE_MS)
        page.evaluate("() => window.jupyterapp.restored.then(() => undefined)")
        sidebar = Sidebar(page)
        sidebar.command("jupyter-salus:show")
        expect(sidebar.panel).to_be_visible()
        return sidebar


class Sidebar:
    """The panel of a page, by what a person sees in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.panel = page.locator("#jupyter-salus-sidebar")

    def command(self, id: str, **args: Any) -> None:
        """Run a command of JupyterLab."""
        self.page.evaluate("([id, args]) => { window.jupyterapp.commands.execute(id, args); }", [id, args])

    def session(self, name: str) -> Locator:
        """The row of a notebook."""
        return self.panel.locator(f".jp-Salus-session[data-name='{name}']")

    def lane(self, id: str) -> Locator:
        """The entry of a lane."""
        return self.panel.locator(f".jp-Salus-lane[data-lane='{id}']")

    def holders(self, lane: str | None = None) -> Locator:
        """The names of those who run in a lane, or in any."""
        return (self.lane(lane) if lane else self.panel).locator(".jp-Salus-holder .jp-Salus-who")

    def queue(self, lane: str | None = None) -> Locator:
        """The names of those who wait for a lane, or for any, the next one first."""
        return (self.lane(lane) if lane else self.panel).locator(".jp-Salus-queue .jp-Salus-who")

    def notice(self) -> Locator:
        """What is wrong, if something is."""
        return self.panel.locator(".jp-Salus-notice")

    def toast(self, text: str) -> Locator:
        """The notice with this text at the page's corner."""
        return self.page.locator(".Toastify__toast", has_text=text)

    def widen(self, width: int) -> None:
        """Drag the sidebar's edge until it is about so wide, in pixels."""
        box = self.panel.bounding_box()
        assert box is not None
        edge = box["x"] + box["width"]
        self.page.mouse.move(edge + 2, 500)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + width + 2, 500, steps=4)
        self.page.mouse.up()

    def theme(self, name: str) -> None:
        """Switch JupyterLab's theme and wait until it is drawn."""
        self.command("apputils:change-theme", theme=name)
        light = "true" if "Light" in name else "false"
        expect(self.page.locator(f"body[data-jp-theme-light='{light}']")).to_be_attached()
        expect(self.page.locator("#jupyterlab-splash")).not_to_be_attached()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""What the sidebar costs and how soon it shows a change: `python -m benchmarks.sidebar`.

A real JupyterLab with the Manager, a real backend, headless Chromium. Three figures:

- from the end of one notebook's loop to the row in the page that shows the other's turn, under `fifo`;
- the server's processor time with many tabs open and nothing happening, a tab being its event socket and its checks;
- with guests in full contention: the server's and the backend's processor time; of a scroll through all rows, while they
  change, the longest frame, and from the browser's own trace the longest task of the page's thread, by the clock and by the
  processor time that it took: on a loaded machine only the latter is the page's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.kernels import quantile
from jupyter_salus.protocol.codec import PROTOCOL
from jupyter_salus.protocol.framing import MAX_ANSWER_BYTES, FrameReader, encode
from jupyter_salus.protocol.version import VERSION
from tests.ui.conftest import FLAGS
from tests.ui.lab import TOKEN, Lab, Sidebar

#: Starts a kernel in the page and keeps it there, ready for code.
START = """async name => {
  const session = await window.jupyterapp.serviceManager.sessions.startNew(
    { path: name, name, type: 'notebook', kernel: { name: 'python3' } });
  (window.bench ??= {})[name] = session.kernel;
  await session.kernel.info;
}"""
RUN = "([name, code]) => { window.bench[name].requestExecute({ code }); }"
WORK = """
import os
while not os.path.exists({flag!r}):
    for number in range(2000):
        number * number
"""
#: Notes when each row came to each state, by the page's clock, which is this machine's.
WATCH = """() => {
  window.seen = [];
  const look = () => document.querySelectorAll('.jp-Salus-session').forEach(row => {
    const key = row.dataset.name + ' ' + row.dataset.state;
    if (row.seenState !== key) { row.seenState = key; window.seen.push([key, Date.now() / 1000]); }
  });
  new MutationObserver(look).observe(document.querySelector('#jupyter-salus-sidebar'),
    { subtree: true, childList: true, attributes: true, attributeFilter: ['data-state'] });
}"""
#: Scrolls the panel up and down for some seconds: the longest frame, in milliseconds.
SCROLL = """async seconds => {
  const panel = document.querySelector('#jupyter-salus-sidebar');
  let frame = 0, last = performance.now(), step = 40;
  const end = last + 1000 * seconds;
  while (last < end) {
    const before = panel.scrollTop;
    panel.scrollTop += step;
    if (panel.scrollTop === before) step = -step;
    const now = await new Promise(requestAnimationFrame);
    frame = Math.max(frame, now - last);
    last = now;
  }
  return frame;
}"""


def traced(browser: Browser, page: Page, seconds: float) -> tuple[float, float, float]:
    """Scrolls, and traces it: the longest frame, the longest task, and the most processor time of a task, in milliseconds."""
    browser.start_tracing(page=page, categories=["devtools.timeline", "disabled-by-default-devtools.timeline"])
    frame = page.evaluate(SCROLL, seconds)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    renderers = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event
        for event in events
        if event.get("name") == "RunTask" and event.get("ph") == "X" and (event["pid"], event["tid"]) in renderers
    ]
    return frame, max(task["dur"] for task in tasks) / 1000, max(task.get("tdur", 0) for task in tasks) / 1000


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shares(pids: list[int], seconds: float) -> list[float]:
    """The processor time that processes use in the next seconds, as shares of one core."""
    before, started = [cpu_s(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    return [(cpu_s(pid) - was) / (time.monotonic() - started) for pid, was in zip(pids, before, strict=True)]


@contextmanager
def running_lab() -> Iterator[Lab]:
    """JupyterLab with the Manager and a backend of its own; both ended afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
    lab = Lab(folder, {"jupyter_salus": True}, extra=("--ServerApp.kernel_manager_class=jupyter_salus.Manager",))
    try:
        yield lab
    finally:
        backend = lab.request("GET", "salus/api/state")["backend"]["pid"]
        lab.stop()
        os.kill(backend, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def grants(lab: Lab, sidebar: Sidebar, rounds: int) -> list[float]:
    """Seconds from the end of one's loop, which hands the other its turn, to the row that shows it: the kernel's end of
    the cell, the backend's decision, the feed, the server, the socket and the page."""
    page = sidebar.page
    lab.request("PATCH", "salus/api/devices/host", {"policy": "fifo"})
    for name in ("a.ipynb", "b.ipynb"):
        page.evaluate(START, name)
    page.evaluate(WATCH)
    flags = [lab.folder / f"flag-{number}" for number in range(rounds + 1)]
    names = ["a.ipynb", "b.ipynb"] * rounds
    page.evaluate(RUN, [names[0], WORK.format(flag=str(flags[0]))])
    expect(sidebar.session(names[0])).to_have_attribute("data-state", "running")
    begun = []
    for number in range(1, rounds + 1):
        page.evaluate(RUN, [names[number], WORK.format(flag=str(flags[number]))])
        expect(sidebar.session(names[number])).to_have_attribute("data-state", "waiting")
        begun.append((names[number], time.time()))
        flags[number - 1].touch()
        expect(sidebar.session(names[number])).to_have_attribute("data-state", "running")
    flags[rounds].touch()
    seen = [(key.split(" ")[0], at) for key, at in page.evaluate("() => window.seen") if key.endswith(" running")]
    delays = [next(shown for other, shown in seen if other == name and shown >= at) - at for name, at in begun]
    for session in lab.request("GET", "api/sessions"):
        lab.request("DELETE", f"api/sessions/{session['id']}")
    return delays


def idle_share(lab: Lab, tabs: int, seconds: float) -> float:
    """The server's share of a core with so many tabs open and nothing happening."""
    url = f"{lab.url.replace('http', 'ws')}/api/events/subscribe?token={TOKEN}"
    sockets = [websocket.create_connection(url) for _ in range(tabs)]
    try:
        lab.request("GET", "salus/api/state")
        [idle] = shares([lab.process.pid], seconds)
        return idle
    finally:
        for one in sockets:
            one.close()


class Guests:
    """Guests in this process that want the device all the time and give it back whenever they are asked."""

    def __init__(self, path: str, count: int) -> None:
        self.path = path
        self.count = count

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(*(self._guest(number) for number in range(self.count)))

    async def _guest(self, number: int) -> None:
        reader, writer = await asyncio.open_unix_connection(self.path)
        frames = FrameReader(MAX_ANSWER_BYTES)

        def say(**said: Any) -> None:
            writer.write(encode(said))

        name = f"guest-{number:03d}"
        say(kind="hello", role="guest", protocol=list(PROTOCOL), version=VERSION, session=name, name=f"{name}.ipynb")
        say(kind="cell_started", cell=1)
        say(kind="turn_wanted", ticket=1)
        ticket = 1
        try:
            while data := await reader.read(65536):
                for heard in frames.feed(data):
                    if heard["kind"] == "turn_revoked":
                        ticket += 1
                        say(kind="turn_released", epoch=heard["epoch"], wants_more=True, ticket=ticket)
        finally:
            writer.close()


@contextmanager
def contention(path: str, count: int) -> Iterator[None]:
    """So many guests in a process of their own, so that they don't count for anybody else."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(Guests(path, count).run())
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def backend_socket(lab: Lab) -> str:
    """The backend's socket, found in the server's own run directory."""
    return str(next((lab.folder / "run").glob("*/backend.sock")))


def opened(browser: Browser) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20, help="turns granted")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement of processor time")
    parser.add_argument("--tabs", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("cannot measure: no chromium on the PATH")
    load = os.getloadavg()[0]
    with running_lab() as lab:
        idle = idle_share(lab, arguments.tabs, arguments.seconds)
        with contention(backend_socket(lab), arguments.sessions), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            sidebar = lab.open(opened(browser))
            expect(sidebar.panel.locator(".jp-Salus-session")).to_have_count(arguments.sessions)
            frame, task, task_cpu = traced(browser, sidebar.page, 10)
            backend = lab.request("GET", "salus/api/state")["backend"]["pid"]
            busy, governing = shares([lab.process.pid, backend], arguments.seconds)
            browser.close()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            delays = grants(lab, lab.open(opened(browser)), arguments.rounds)
            browser.close()
    figures = {
        "grants": len(delays),
        "grant_seen_p50_ms": 1000 * quantile(delays, 0.5),
        "grant_seen_p99_ms": 1000 * quantile(delays, 0.99),
        f"server_cpu_{arguments.tabs}_tabs_idle_percent": 100 * idle,
        f"server_cpu_{arguments.sessions}_sessions_percent": 100 * busy,
        f"backend_cpu_{arguments.sessions}_sessions_percent": 100 * governing,
        "longest_frame_ms": frame,
        "longest_task_ms": task,
        "longest_task_cpu_ms": task_cpu,
        "cores": os.cpu_count(),
        "load_before": load,
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:40} {value:.1f}" if isinstance(value, float) else f"{name:40} {value}")


if __name__ == "__main__":
    main()

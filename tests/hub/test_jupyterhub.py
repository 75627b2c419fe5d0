"""A real JupyterHub: real Unix users, their servers and kernels, one backend as root and one without any rights.

In the order of the file: what users may and may not, what the limits do, then what ends and restarts while all runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from jupyter_salus.errors import NotAllowed, SalusError
from jupyter_salus.protocol.client import Client
from tests.conftest import RUN_MARK
from tests.daemon.speaking import Talker
from tests.hub.accounts import Accounts, processes_of
from tests.hub.conftest import as_user
from tests.hub.running import BASE, PROXY, Hub, HubTalk, SystemBackend, UserServer, wait_for
from tests.ui.conftest import FLAGS
from tests.ui.conftest import _chromium as chromium_path

#: Set where these tests must run, in CI: there none of these reasons is one.
MUST_RUN = "JUPYTER_SALUS_TEST_HUB"
for reason, there in (
    ("only root can make Unix users", os.getuid() == 0),
    ("there is no useradd here", shutil.which("useradd") is not None),
    ("configurable-http-proxy isn't installed (npm)", PROXY.exists() or shutil.which("configurable-http-proxy")),
):
    if not there and MUST_RUN in os.environ:
        pytest.fail(f"{MUST_RUN} is set, but {reason}", pytrace=False)
    if not there:
        pytest.skip(reason, allow_module_level=True)

pytestmark = pytest.mark.timeout(400)
LIMITS = """
[default]
max_sessions = 12
[groups.course]
max_priority = "normal"
"""
#: Computes for long, with boundaries at which turns pass.
LOOP = (
    "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end:\n    for i in range(20000): i * i"
)


class Site:
    """Hub, backends and users `ada`, `bob` (course), `cleo` (who has the backend without rights) and `eve`, whose server is in
    a container, where it has ada's uid."""

    def __init__(self, directory: Path, end: ExitStack) -> None:
        self.directory = directory
        self.accounts = Accounts(directory, "ada", "bob", "cleo", "eve", "salus")
        end.callback(self.accounts.close)
        self.backend = SystemBackend(directory / "r", None)
        end.callback(self.backend.close)
        self.backend.limits.write_text(LIMITS)
        self.plain = SystemBackend(directory / "u", self.accounts["salus"])
        end.callback(self.plain.close)
        ada, bob, cleo = (self.accounts[one] for one in ("ada", "bob", "cleo"))
        page = "access:services!service=salus"
        self.hub = Hub(
            directory,
            self.accounts,
            {"others": self.backend.socket, cleo: self.plain.socket},
            self.backend.admin_socket,
            groups={"course": {"users": [bob]}},
            roles=[
                {"name": "salus-admin", "users": [ada], "scopes": ["custom:salus:admin", page]},
                {"name": "salus-reader", "users": [cleo], "scopes": ["custom:salus:read", page]},
                {"name": "user", "scopes": ["self", page]},
            ],
            prompt=bob,
            containers={self.accounts["eve"]: str(self.accounts.uid("ada"))},
        )
        end.callback(self.hub.close)
        self.tokens = {kind: self.hub.add(self.accounts[kind]) for kind in ("ada", "bob", "cleo", "eve")}
        for kind in self.tokens:
            self.hub.spawn(self.accounts[kind])

    def server(self, kind: str, name: str = "") -> UserServer:
        return self.hub.server(self.accounts[kind], self.tokens[kind], name)

    def name(self, kind: str) -> str:
        return self.accounts[kind]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="js", dir="/tmp"))
    directory.chmod(0o755)
    with ExitStack() as end:
        # Whatever fails, in here or in a test: no account and no process stays.
        end.callback(shutil.rmtree, directory, ignore_errors=True)
        yield Site(directory, end)


@pytest.fixture(scope="module")
def notebook(site: Site) -> str:
    """A session of ada's, with a name that nobody else is to see, and a cell that ran."""
    kernel = site.server("ada").open_notebook("<b>secret.ipynb")["kernel"]["id"]
    site.backend.managed(kernel)
    return str(kernel)


def seen(server: UserServer, id: str, holds: Callable[[dict[str, Any]], object] = bool) -> dict[str, Any]:
    """A session's row in the state that a server tells, once it is there and as wanted: a server hears of sessions, of their
    figures and of a backend that came back at its own pace."""

    def found() -> dict[str, Any] | None:
        answer = server.request("GET", "salus/api/state")
        rows = answer.json()["sessions"] if answer.status_code == 200 else ()
        return next((row for row in rows if row["id"] == id and holds(row)), None)

    row: dict[str, Any] = wait_for(found, f"session {id} at {server.base_url}")
    return row


def test_each_users_kernels_are_their_own_sessions_of_one_backend(site: Site, notebook: str) -> None:
    with HubTalk(site.server("ada"), notebook) as talk:
        assert talk.run("import os; print(os.getuid())")["stdout"].strip() == str(site.accounts.uid("ada"))
    row = site.backend.sessions()[notebook]
    assert (row["user"], row["managed"], row["name"]) == (site.name("ada"), True, "<b>secret.ipynb")
    mine = seen(site.server("ada"), notebook)
    others = seen(site.server("bob"), notebook, lambda row: row["persistent_bytes"] > 0)
    assert (mine["own"], mine["here"], mine["path"]) == (True, True, "<b>secret.ipynb")
    assert (others["own"], others["here"]) == (False, False)
    assert [others[field] for field in ("name", "path", "kernel_id", "cell_id", "user")] == [None] * 5


def test_others_sessions_are_refused_by_rest(site: Site, notebook: str) -> None:
    bob = site.server("bob")
    for method, path, body in (
        ("PATCH", "", {"priority": "low"}),
        ("PATCH", "", {"pinned": True}),
        ("POST", "/yield", None),
        ("POST", "/evict", None),
    ):
        answer = bob.request(method, f"salus/api/sessions/{notebook}{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), answer.text
    refused = bob.request("PATCH", "salus/api/devices/host", json={"policy": "fifo"})
    assert refused.status_code == 403, refused.text
    # And ada's own server takes nobody else's token.
    adas = UserServer(site.hub, site.name("ada"), site.tokens["bob"])
    assert adas.request("GET", "salus/api/state").status_code == 403
    assert f"hub user {site.name('bob')}" not in site.backend.log.read_text()
    assert f"uid {site.accounts.uid('bob')}" in site.backend.log.read_text()


def test_others_sessions_are_refused_at_the_socket_whatever_a_hello_says(site: Site, notebook: str) -> None:
    uid = site.accounts.uid("bob")
    with as_user(uid):
        with pytest.raises(PermissionError):
            Talker(site.backend.admin_socket)
        talkers = [Talker(site.backend.socket) for _ in range(3)]
        client = Client(site.backend.socket, role="server")
    hello = {"kind": "hello", "protocol": [1, 1], "version": "0", "session": notebook}
    pid = next(processes_of(site.accounts.uid("ada")))
    forged: list[dict[str, Any]] = [
        {"role": "guest", "token": "t" * 20},
        {"role": "guest", "key": "k" * 20},
        {"role": "guard", "pid": pid},
    ]
    for talker, more in zip(talkers, forged, strict=True):
        talker.say({**hello, **more})
        assert talker.hear("failed")["code"] in ("not_allowed", "not_possible"), more
        talker.close()
    with client:
        for verb, value in (("priority", "low"), ("yield", None), ("user", "{}"), ("drain", "true"), ("retire", None)):
            with pytest.raises(NotAllowed):
                client.act(verb, notebook if verb in ("priority", "yield") else "host", value)
    assert site.backend.sessions()[notebook]["priority"] == "normal"


def test_a_server_in_a_container_is_its_hub_users_whatever_uid_it_has_there(site: Site, notebook: str) -> None:
    ada, eve = site.server("ada"), site.server("eve")
    kernel = eve.open_notebook("hers.ipynb")["kernel"]["id"]
    row = site.backend.managed(kernel)  # its memory is measured: the backend sees the process
    assert (row["user"], row["name"], row["managed"]) == (site.name("eve"), "hers.ipynb", True)
    with HubTalk(eve, kernel) as talk:
        code = "import os; print(os.getuid(), os.listdir('/run/jupyter-salus'))"
        assert talk.run(code)["stdout"].strip() == f"{site.accounts.uid('ada')} ['backend.sock']"
    for server, own, other in ((eve, kernel, notebook), (ada, notebook, kernel)):
        rows = {id: seen(server, id) for id in (own, other)}
        assert [(rows[id]["own"], rows[id]["here"]) for id in (own, other)] == [(True, True), (False, False)]
        assert rows[other]["name"] is None
        refused = server.request("PATCH", f"salus/api/sessions/{other}", json={"priority": "low"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert f"hub user {site.name('eve')}) of {site.name('eve')}: cannot priority" in site.backend.log.read_text()
    eve.shut_down(kernel)


def test_the_xsrf_token_and_the_cookies_path_are_the_servers(site: Site, notebook: str) -> None:
    browser = site.hub.browser(site.name("ada"))
    base = f"user/{site.name('ada')}/"
    assert browser.get(site.hub.url(f"{base}files/%3Cb%3Esecret.ipynb")).status_code == 200
    token = next(one for one in browser.cookies if one.name == "_xsrf" and one.path == f"{BASE}{base}")
    session = site.hub.url(f"{base}salus/api/sessions/{notebook}")
    # What a browser says of a request that a page's script makes.
    browser.headers.update({"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"})
    other = next(str(one.value) for one in browser.cookies if one.name == "_xsrf" and one.path != token.path)
    wish = {"priority": "low"}
    for method, body in (("GET", None), ("PATCH", wish)):
        for forged in ({}, {"X-XSRFToken": "2|x|y"}, {"X-XSRFToken": other}):
            # Without the body: who refuses early doesn't read it, which a proxy in between may take for a broken server.
            answer = browser.request(method, session, headers=forged)
            assert answer.status_code == 403, (method, forged, answer.text)
        answer = browser.request(method, session, json=body, headers={"X-XSRFToken": str(token.value)})
        assert answer.status_code == 200, (method, answer.text)
    assert site.backend.sessions()[notebook]["priority"] == "low"


def test_a_shared_server_is_its_owners(site: Site, notebook: str) -> None:
    """Whoever was given access to a server acts there as its user does, and nowhere else."""
    ada, bob = site.name("ada"), site.name("bob")
    shared = site.hub.api("POST", f"shares/{ada}/", json={"user": bob})
    assert shared.ok, shared.text
    # The server remembers for a while what a token may: this one is new to it.
    through = UserServer(site.hub, ada, site.hub.add(bob))
    wait_for(lambda: through.request("GET", "salus/api/state").status_code == 200, "the share to count")
    assert seen(through, notebook)["own"] is True
    assert seen(site.server("bob"), notebook)["own"] is False
    assert site.hub.api("DELETE", f"shares/{ada}/?user={bob}").ok


def test_limits_of_a_hubs_groups_hold(site: Site) -> None:
    bob = site.server("bob")
    row = site.backend.user(site.name("bob"))
    assert "course" in row["groups"]
    assert row["limits"]["max_priority"] == "normal"
    kernel = bob.start_kernel()
    site.backend.managed(kernel)
    seen(bob, kernel)
    answer = bob.request("PATCH", f"salus/api/sessions/{kernel}", json={"priority": "high"})
    assert (answer.status_code, answer.json()["code"]) == (403, "over_limit")
    bob.shut_down(kernel)


def test_a_user_with_ten_notebooks_has_the_share_of_one_with_one(site: Site) -> None:
    """And the eleventh, beyond the limit, runs by itself and is shown with the reason."""
    with ten_and_one(site) as (tens, one):
        shared_by_halves(site, tens, one)


@contextmanager
def ten_and_one(site: Site) -> Iterator[tuple[list[str], str]]:
    """Ten kernels of bob's and one of ada's. Whatever comes of them they end, and the limits are as before."""
    bob, ada = site.server("bob"), site.server("ada")
    tens, ones = [], []
    try:
        tens += [bob.start_kernel() for _ in range(10)]
        ones += [ada.start_kernel()]
        yield tens, ones[0]
    finally:
        site.backend.limits.write_text(LIMITS)
        with ThreadPoolExecutor(11) as threads:
            ends = [threads.submit(bob.shut_down, kernel) for kernel in tens]
            ends += [threads.submit(ada.shut_down, kernel) for kernel in ones]
        for end in ends:
            end.result()


def shared_by_halves(site: Site, tens: list[str], one: str) -> None:
    bob, ada = site.server("bob"), site.server("ada")
    for kernel in [*tens, one]:
        site.backend.managed(kernel)
    site.backend.limits.write_text(LIMITS.replace("12", "10"))
    wait_for(lambda: site.backend.user(site.name("bob"))["limits"]["max_sessions"] == 10, "the limits to be read")
    over = bob.start_kernel()
    assert "the limit is 10" in seen(bob, over, lambda row: row["unmanaged_reason"])["unmanaged_reason"]
    bob.shut_down(over)
    talks = [HubTalk(bob, kernel) for kernel in tens] + [HubTalk(ada, one)]
    for talk in talks:
        talk.send(LOOP.format(seconds=600))

    def halves() -> bool:
        # Counted from the first turn on, first cells' credit included: what is unfair for a while is bounded, whatever the
        # turns' length, so the shares come to a half each and stay there.
        rows = site.backend.sessions()
        theirs, mine = sum(rows[kernel]["used_s"] for kernel in tens), rows[one]["used_s"]
        used[:] = theirs, mine
        return theirs + mine > 6 and 0.45 <= mine / (theirs + mine) <= 0.55

    used: list[float] = []
    wait_for(halves, f"half the device for each user, of {used}")
    for talk in talks:
        talk.close()


def test_a_backend_without_rights_governs_as_well_and_says_what_it_lacks(site: Site) -> None:
    assert "may lock and checkpoint any user's process" in site.backend.ask("about")["powers"]
    assert "asks guests and guards only" in site.plain.ask("about")["powers"]
    assert "asks guests and guards only" in site.plain.log.read_text()
    cleo = site.server("cleo")
    kernels = [cleo.start_kernel() for _ in range(2)]
    for kernel in kernels:
        assert site.plain.managed(kernel)["user"] == site.name("cleo")
    talks = [HubTalk(cleo, kernel) for kernel in kernels]
    for talk in talks:
        talk.send(LOOP.format(seconds=600))
    wait_for(lambda: all(row["turns"] >= 2 for row in site.plain.sessions(site.name("cleo")).values()), "turns to pass")
    for talk, kernel in zip(talks, kernels, strict=True):
        talk.close()
        cleo.shut_down(kernel)


def test_a_named_server_shares_its_users_seats(site: Site) -> None:
    site.hub.spawn(site.name("cleo"), "second")
    second = site.server("cleo", "second")
    first = site.server("cleo")
    kernels = [server.start_kernel() for server in (first, second)]
    for kernel in kernels:
        site.plain.managed(kernel)
    # Kernels that were shut down a moment ago may be about to go.
    wait_for(lambda: site.plain.user(site.name("cleo"))["sessions"] == 2, "two seats of one user, and no more")
    assert [seen(second, kernel)["own"] for kernel in kernels] == [True, True]
    # Stopped by the hub, without any clean-up of the server's: its session goes, the other stays.
    site.hub.stop_server(site.name("cleo"), "second")
    wait_for(lambda: set(site.plain.sessions()) == {kernels[0]}, "the session to go with its server")


def test_the_admins_page_asks_for_scopes_and_xsrf_and_escapes_what_users_wrote(site: Site, notebook: str) -> None:
    page = site.hub.url("services/salus/")
    eve = site.hub.browser(site.name("eve"))
    assert eve.get(page).status_code == 403
    reader = site.hub.browser(site.name("cleo"))
    read = reader.get(page)
    assert read.status_code == 200
    assert "&lt;b&gt;secret.ipynb" in read.text
    assert "<b>secret" not in read.text
    assert "<form" not in read.text
    script = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"}
    assert reader.get(f"{page}table", headers=script, allow_redirects=False).status_code != 200
    token = read.text.partition('data-xsrf="')[2].partition('"')[0]
    assert reader.get(f"{page}table", headers={**script, "X-XSRFToken": token}).status_code == 200
    fields = {"host": "here", "verb": "pinned", "target": notebook, "value": "true"}
    xsrf = next(
        str(one.value) for one in reader.cookies if one.name == "_xsrf" and one.path == f"{BASE}services/salus/"
    )
    assert reader.post(f"{page}act", data={**fields, "_xsrf": xsrf}).status_code == 403
    admin = site.hub.browser(site.name("ada"))
    shown = admin.get(page)
    assert "Evict" in shown.text
    assert "frame-ancestors 'none'" in shown.headers["Content-Security-Policy"]
    xsrf = next(str(one.value) for one in admin.cookies if one.name == "_xsrf" and one.path == f"{BASE}services/salus/")
    assert admin.post(f"{page}act", data=fields).status_code == 403
    done = admin.post(f"{page}act", data={**fields, "_xsrf": xsrf})
    assert (done.status_code, done.url) == (200, f"{page}?said=done%3A+pinned+true")
    assert site.backend.sessions()[notebook]["pinned"] is True
    wrong = admin.post(f"{page}act", data={**fields, "target": "<i>none", "_xsrf": xsrf})
    assert "cannot find a session &#x27;&lt;i&gt;none" in wrong.text or "&lt;i&gt;none" in wrong.text
    assert "<i>none" not in wrong.text
    figures = admin.get(f"{page}metrics").text
    assert f'salus_user_sessions{{host="here",user="{site.name("ada")}"}} 1.0' in figures


def test_the_admins_page_lives_by_its_own_script_and_its_buttons_work(
    site: Site, notebook: str, isolated_run: Path
) -> None:
    signed_in, url = site.hub.browser(site.name("ada")), site.hub.url("services/salus/")
    assert signed_in.get(url).status_code == 200
    cookies = [
        {"name": one.name, "value": str(one.value), "domain": "127.0.0.1", "path": one.path}
        for one in signed_in.cookies
    ]
    environment = {name: value for name, value in os.environ.items() if name != RUN_MARK}
    complaints: list[str] = []
    with sync_playwright() as playwright, Client(site.backend.admin_socket) as admin:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS, env=environment)  # type: ignore[arg-type]
        page = chromium.new_page()
        page.set_default_timeout(60_000)
        page.context.add_cookies(cookies)  # type: ignore[arg-type]
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        admin.act("pinned", notebook, "false")
        page.goto(url)
        row = page.get_by_role("row").filter(has_text="<b>secret.ipynb")
        row.get_by_role("button", name="Pin <b>secret.ipynb", exact=True).wait_for()
        admin.act("pinned", notebook, "true")
        unpin = row.get_by_role("button", name="Unpin <b>secret.ipynb", exact=True)
        unpin.wait_for()  # without loading the page again
        unpin.click()
        page.get_by_text("done: pinned false").wait_for()
        assert site.backend.sessions()[notebook]["pinned"] is False
        chromium.close()
    assert complaints == []


def test_a_device_is_drained_and_taken_back(site: Site, notebook: str) -> None:
    with Client(site.backend.admin_socket) as admin:
        admin.act("drain", "host", "a new driver")
        with HubTalk(site.server("ada"), notebook) as talk:
            sent = talk.send(LOOP.format(seconds=0.5))
            row = wait_for(
                lambda: (lambda row: row if row["reason"] else None)(site.backend.sessions()[notebook]), "the wait"
            )
            assert row["reason"]["code"] == "drained"
            assert "a new driver" in row["reason"]["text"]
            admin.act("drain", "host", "false")
            assert talk.reply(sent)["status"] == "ok"


def test_the_hub_restarts_and_nothing_happens_to_sessions(site: Site, notebook: str) -> None:
    site.hub.stop()
    before = site.backend.sessions()[notebook]
    site.hub.backdate(site.name("ada"))
    site.hub.start()
    assert seen(site.server("ada"), notebook)["started_at"] == before["started_at"]
    admin = site.hub.browser(site.name("ada"))
    page = site.hub.url("services/salus/")
    wait_for(lambda: admin.get(page).status_code == 200, "the page to be back")


def test_the_backend_restarts_and_sessions_come_back_in_their_cells(site: Site, notebook: str) -> None:
    with HubTalk(site.server("ada"), notebook) as talk:
        sent = talk.send("x = 1\n" + LOOP.format(seconds=3) + "\nprint(x)")
        wait_for(lambda: site.backend.sessions()[notebook]["turn"] != "none", "the cell's turn")
        site.backend.kill()
        site.backend.start()
        assert talk.reply(sent)["stdout"].strip() == "1"
    assert site.backend.managed(notebook)["user"] == site.name("ada")
    assert "course" in site.backend.user(site.name("bob"))["groups"]
    assert seen(site.server("ada"), notebook)["own"] is True


def test_an_idle_server_is_culled_and_frees_all_and_one_whose_cell_waits_is_not(site: Site) -> None:
    """By JupyterHub's own culler. Ada's server has been idle for a day, bob's cell waits."""
    ada, bob = site.name("ada"), site.name("bob")
    assert site.backend.sessions(ada)
    server = site.server("bob")
    kernel = server.start_kernel()
    site.backend.managed(kernel)
    with Client(site.backend.admin_socket) as admin, HubTalk(server, kernel) as talk:
        admin.act("drain", "host", "true")
        sent = talk.send(LOOP.format(seconds=0.5))
        wait_for(lambda: site.backend.sessions()[kernel]["state"] == "waiting", "the cell to wait")
        # Its beginning is a sign of life, and its waiting line; further ones come from the wait alone.
        for _ in range(4):
            site.hub.await_activity(bob)
        site.hub.cull(timeout_s=3600)
        wait_for(lambda: not site.backend.sessions(ada), "ada's sessions to go with the server")
        assert site.hub.api("GET", f"users/{bob}").json()["servers"][""]["ready"] is True
        admin.act("drain", "host", "false")
        assert talk.reply(sent)["status"] == "ok"
    server.shut_down(kernel)


def test_a_user_who_is_removed_while_running_leaves_nothing(site: Site) -> None:
    bob = site.name("bob")
    server = site.server("bob")
    kernel = server.start_kernel()
    site.backend.managed(kernel)
    with HubTalk(server, kernel) as talk:
        talk.send(LOOP.format(seconds=600))
        assert site.hub.api("DELETE", f"users/{bob}").status_code == 204
    wait_for(lambda: kernel not in site.backend.sessions(), "the session to go")
    wait_for(
        lambda: not any(row["name"] == bob and row["known"] for row in site.backend.ask("users")["users"]),
        "the backend to forget the user",
    )
    wait_for(lambda: not list(processes_of(site.accounts.uid("bob"))), "bob's processes to end")
    site.accounts.remove("bob")
    with pytest.raises(SalusError), Client(site.backend.socket) as client:
        client.act("priority", kernel, "low")
    assert subprocess.run(["id", bob], capture_output=True, check=False).returncode != 0

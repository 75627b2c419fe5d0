"""The sidebar in JupyterLab over a server that answers what the test sets: states that real kernels can't be brought to."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .conftest import Stage, moved_to, wire
from .lab import LABEXTENSION, Lab, Sidebar

GIB = 2**30


@pytest.fixture(scope="module")
def lab(lab_folder: Path, isolated_run: Path) -> Iterator[Lab]:
    """Below a prefix with a character that is encoded in addresses, as a hub's users have."""
    lab = Lab(lab_folder, {"jupyter_salus": False, "salus_fixture": True}, base="/user/a%40b")
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def module_stage(lab: Lab) -> Stage:
    stage = Stage(lab)
    stage.show(moved_to(time.time(), wire("state")), history=moved_to(time.time(), wire("history")))
    return stage


@pytest.fixture(scope="module")
def lab_sidebar(lab: Lab, module_stage: Stage, page: Page) -> Sidebar:
    return lab.open(page)


@pytest.fixture
def stage(module_stage: Stage, sidebar: Sidebar) -> Stage:
    """Each test begins with the example, drawn."""
    module_stage.show(moved_to(time.time(), wire("state")))
    sidebar.command("jupyter-salus:refresh")
    expect(sidebar.session("train.ipynb")).to_have_attribute("data-state", "running")
    expect(sidebar.notice()).to_have_count(0)
    return module_stage


def id_of(stage: Stage, name: str) -> str:
    return next(str(row["id"]) for row in stage.state["sessions"] if row["name"] == name)


def turn_passed(stage: Stage) -> None:
    """The example's event: train.ipynb gives its turn to tune.ipynb."""
    event = moved_to(time.time(), wire("event"))
    stage.change(*event["sessions"], lanes=event["lanes"])


def test_it_looks_as_in_the_pictures(sidebar: Sidebar, stage: Stage, screenshots: Path) -> None:
    page = sidebar.page
    sidebar.widen(340)
    page.set_viewport_size({"width": 1280, "height": 1640})
    try:
        for theme, name in (("JupyterLab Light", "sidebar-light"), ("JupyterLab Dark", "sidebar-dark")):
            sidebar.theme(theme)
            page.mouse.move(900, 700)
            expect(sidebar.panel.locator(".jp-Salus-span.jp-mod-evicted").first).to_be_visible()
            sidebar.panel.evaluate("node => { node.scrollTop = 0; }")
            box = sidebar.panel.bounding_box()
            assert box is not None
            height = sidebar.panel.evaluate(
                "node => Math.min(node.clientHeight, node.lastElementChild.scrollHeight + 8)"
            )
            picture = page.screenshot(clip={"x": box["x"], "y": box["y"], "width": box["width"], "height": height})
            assert len(picture) > 10_000
            (screenshots / f"{name}.png").write_bytes(picture)
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})
        sidebar.theme("JupyterLab Light")


def test_one_look_tells_devices_lanes_and_sessions(sidebar: Sidebar, stage: Stage) -> None:
    bar = sidebar.panel.get_by_role("img", name="Memory of NVIDIA A100-SXM4-40GB").first
    expect(bar).to_have_attribute(
        "aria-label",
        "Memory of NVIDIA A100-SXM4-40GB: Persistent 20.0 GiB, Ephemeral 15.0 GiB, Other programs 0.8 GiB, Free 3.8 GiB",
    )
    expect(sidebar.holders("gpu0/1")).to_have_text("train.ipynb")
    expect(sidebar.queue("gpu0/1")).to_have_text(["tune.ipynb", "sweep.ipynb"])
    train = sidebar.session("train.ipynb")
    for text in ("train.ipynb", "vision", "Lane 1", "P 5.5", "E 6.0 GiB", "used 12 min", "waited 12 s"):
        expect(train).to_contain_text(text)
    expect(train).to_contain_text(re.compile(r"Running for \d+ min"))
    expect(sidebar.session("embed.ipynb")).to_contain_text(re.compile(r"Evicted for \d+ min, in host memory"))
    expect(sidebar.session("notes.ipynb")).to_contain_text(re.compile(r"Idle for \d+ min, holds memory"))
    expect(sidebar.session("notes.ipynb")).to_contain_text("P 2.0 GiB")
    expect(sidebar.session("tune.ipynb").locator(".jp-Salus-mode")).to_have_text("regions")
    expect(sidebar.session("scratch.ipynb")).to_contain_text("No use yet")
    expect(sidebar.panel.locator("[data-group=others] li")).to_have_count(2)


def test_a_wait_tells_its_place_its_length_and_its_reason(sidebar: Sidebar, stage: Stage) -> None:
    tune = sidebar.session("tune.ipynb")
    expect(tune).to_contain_text(re.compile(r"Waiting for \d+ s, next in line"))
    expect(sidebar.lane("gpu0/1").locator(".jp-Salus-queue li").first).to_contain_text(re.compile(r"\d+ s"))
    expect(tune.locator(".jp-Salus-reason")).to_have_text("waits for train.ipynb, which has the device")


def test_a_passing_turn_is_shown_and_no_row_moves(sidebar: Sidebar, stage: Stage) -> None:
    names = sidebar.panel.locator(".jp-Salus-session .jp-Salus-name")
    order = names.all_inner_texts()
    turn_passed(stage)
    expect(sidebar.session("tune.ipynb")).to_have_attribute("data-state", "running")
    expect(sidebar.session("train.ipynb")).to_contain_text(re.compile("Waiting for .*, 2nd in line"))
    expect(sidebar.holders("gpu0/1")).to_have_text("tune.ipynb")
    assert names.all_inner_texts() == order


def test_a_missed_event_is_made_good_by_a_request(sidebar: Sidebar, stage: Stage) -> None:
    turn_passed(stage)
    expect(sidebar.session("tune.ipynb")).to_have_attribute("data-state", "running")
    tune = next(row for row in stage.state["sessions"] if row["name"] == "tune.ipynb")
    state = {**stage.state, "revision": stage.state["revision"] + 5}
    state["sessions"] = [row for row in state["sessions"] if row["id"] != tune["id"]]
    gap = {"revision": state["revision"], "previous_revision": state["revision"] - 1, "as_of": time.time()}
    stage.control(state=state, event={**gap, "sessions": [], "removed_sessions": []})
    expect(sidebar.session("tune.ipynb")).to_have_count(0)


def test_a_priority_is_shown_at_once_and_sent(sidebar: Sidebar, stage: Stage) -> None:
    sidebar.session("tune.ipynb").get_by_label("Priority of tune.ipynb").select_option("high")
    expect(sidebar.session("tune.ipynb").locator("select")).to_have_value("high")
    id = id_of(stage, "tune.ipynb")
    stage.change({"id": id, "priority": "high"})
    expect(sidebar.session("tune.ipynb").locator("select")).to_have_value("high")
    assert stage.asked() == [{"method": "PATCH", "path": f"sessions/{id}", "body": {"priority": "high"}}]


def test_a_refused_priority_goes_back_and_says_why(sidebar: Sidebar, stage: Stage) -> None:
    stage.control(
        refusal=[409, {"code": "not_possible", "message": "cannot change it: the kernel is gone", "detail": {}}]
    )
    sidebar.session("tune.ipynb").locator("select").select_option("low")
    expect(sidebar.toast("The priority of tune.ipynb wasn’t changed.")).to_be_visible()
    expect(sidebar.toast("cannot change it: the kernel is gone")).to_be_visible()
    expect(sidebar.session("tune.ipynb").locator("select")).to_have_value("normal")


@pytest.mark.parametrize(
    ("name", "button", "path"),
    [
        ("train.ipynb", "Yield: pass the turn on", "yield"),
        ("notes.ipynb", "Evict: move it to host memory", "evict"),
        ("embed.ipynb", "Restore: bring it back to the device", "restore"),
    ],
)
def test_a_verb_is_sent_by_its_button(sidebar: Sidebar, stage: Stage, name: str, button: str, path: str) -> None:
    row = sidebar.session(name)
    row.hover()
    row.get_by_role("button", name=button).click()
    sidebar.page.wait_for_function("() => true")
    expect(row.get_by_role("button", name=button)).to_be_enabled()
    assert stage.asked() == [{"method": "POST", "path": f"sessions/{id_of(stage, name)}/{path}", "body": {}}]


def test_a_pin_is_shown_and_sent(sidebar: Sidebar, stage: Stage) -> None:
    row = sidebar.session("train.ipynb")
    row.hover()
    row.get_by_role("button", name="Pin: evict it last").click()
    expect(row.get_by_role("button", name="Unpin")).to_have_attribute("aria-pressed", "true")
    stage.change({"id": id_of(stage, "train.ipynb"), "pinned": True})
    assert [one["body"] for one in stage.asked()] == [{"pinned": True}]


def test_what_is_not_possible_now_is_disabled(sidebar: Sidebar, stage: Stage) -> None:
    expect(sidebar.session("notes.ipynb").get_by_role("button", name="Yield")).to_be_disabled()
    expect(sidebar.session("embed.ipynb").get_by_role("button", name="Yield")).to_be_disabled()
    expect(sidebar.session("scratch.ipynb").get_by_role("button", name="Evict: move")).to_be_disabled()


def test_the_host_device_offers_no_moves(sidebar: Sidebar, stage: Stage) -> None:
    stage.change({"id": id_of(stage, "notes.ipynb"), "memory_mode": "host"})
    row = sidebar.session("notes.ipynb")
    expect(row.get_by_role("button", name="Evict: move")).to_have_count(0)
    expect(row.get_by_role("button", name="Shut down the kernel")).to_be_enabled()


def test_a_pointed_session_is_lit_wherever_it_stands(sidebar: Sidebar, stage: Stage) -> None:
    sidebar.session("train.ipynb").hover()
    id = id_of(stage, "train.ipynb")
    for place in (".jp-Salus-part", ".jp-Salus-holder", ".jp-Salus-session"):
        expect(sidebar.panel.locator(f"{place}[data-session='{id}']")).to_have_attribute("data-lit", "")
    sidebar.session("notes.ipynb").hover()
    expect(sidebar.panel.locator(f".jp-Salus-part[data-session='{id}']")).not_to_have_attribute("data-lit", "")


def test_a_row_has_its_actions_in_a_menu_of_its_own(sidebar: Sidebar, stage: Stage) -> None:
    sidebar.session("embed.ipynb").click(button="right")
    menu = sidebar.page.locator(".lm-Menu")
    expect(menu).to_contain_text("GPU priority: High")
    menu.get_by_role("menuitem", name="Restore to the GPU").click()
    expect(menu).to_have_count(0)
    expect(sidebar.session("embed.ipynb").get_by_role("button", name="Restore")).to_be_enabled()
    assert [one["path"] for one in stage.asked()] == [f"sessions/{id_of(stage, 'embed.ipynb')}/restore"]


def test_a_device_offers_the_policies_that_the_server_lets_through(sidebar: Sidebar, stage: Stage) -> None:
    first, second = stage.state["devices"]
    stage.change(devices=[{**first, "policies": ["fair", "pack"]}, {**second, "policies": []}])
    policy = sidebar.panel.locator("[data-device=gpu0] .jp-Salus-policy")
    expect(policy.locator("option")).to_have_text(["Fair shares", "Pack"])
    expect(sidebar.panel.locator("[data-device=gpu1] .jp-Salus-policy")).to_contain_text("First come, first served")
    expect(sidebar.panel.locator("[data-device=gpu1] select")).to_have_count(0)


def test_a_session_without_a_guard_says_what_it_lacks_and_why(sidebar: Sidebar, stage: Stage) -> None:
    why = "cannot preload the guard: the kernel's Python is linked statically"
    stage.change({"id": id_of(stage, "train.ipynb"), "memory_mode": "plain", "unguarded_reason": why})
    mode = sidebar.session("train.ipynb").locator(".jp-Salus-mode")
    expect(mode).to_have_text("plain")
    expect(mode).to_have_attribute("title", re.compile("turns pass at boundaries only"))
    expect(sidebar.session("train.ipynb")).to_contain_text(f"No guard: {why}")


def test_a_drained_device_says_so(sidebar: Sidebar, stage: Stage) -> None:
    first, second = stage.state["devices"]
    stage.change(devices=[{**first, "draining": "new driver at noon", "empty": False}, second])
    expect(sidebar.panel.locator("[data-device=gpu0]")).to_contain_text(
        "lets nobody on to this device: new driver at noon"
    )
    expect(sidebar.panel.locator("[data-device=gpu1]")).not_to_contain_text("lets nobody on")


def test_what_the_server_keeps_back_of_others_is_not_made_up(sidebar: Sidebar, stage: Stage) -> None:
    kept_back = {"name": None, "user": None, "reason": None, "persistent_bytes": 2 * GIB}
    stage.change({"id": id_of(stage, "bert.ipynb"), **kept_back})
    row = sidebar.session("Somebody’s notebook")
    expect(row).to_contain_text("Running")
    expect(row.get_by_role("button", name="Somebody’s notebook", exact=True)).to_have_count(0)
    expect(sidebar.holders("gpu0/2")).to_have_text("Somebody’s notebook")


def test_an_eviction_of_ones_own_notebook_is_told(sidebar: Sidebar, stage: Stage) -> None:
    stage.change({"id": id_of(stage, "train.ipynb"), "state": "evicting", "residency": "evicting"})
    expect(sidebar.session("train.ipynb")).to_contain_text("Being evicted")
    stage.change({"id": id_of(stage, "train.ipynb"), "state": "evicted", "residency": "evicted"})
    expect(sidebar.toast("train.ipynb was moved to host memory")).to_be_visible()


def test_an_eviction_of_somebody_else_is_not_told(sidebar: Sidebar, stage: Stage) -> None:
    stage.change({"id": id_of(stage, "sweep.ipynb"), "state": "evicted", "residency": "evicted"})
    expect(sidebar.session("sweep.ipynb")).to_contain_text("Evicted")
    expect(sidebar.toast("sweep.ipynb was moved")).to_have_count(0)


def test_a_notebook_that_cannot_go_on_is_told_with_its_reason(sidebar: Sidebar, stage: Stage) -> None:
    reason = {
        "code": "no_room",
        "text": "needs 9.0 GiB of the device's memory, 5.2 GiB more than is free",
        "behind": None,
    }
    stage.change({"id": id_of(stage, "tune.ipynb"), "reason": reason})
    expect(sidebar.toast("tune.ipynb can’t go on now: needs 9.0 GiB")).to_be_visible()


def test_somebody_elses_notebook_is_asked_about_first(sidebar: Sidebar, stage: Stage) -> None:
    row = sidebar.session("bert.ipynb")
    dialog = sidebar.page.locator(".jp-Dialog")
    row.hover()
    row.get_by_role("button", name="Yield").click()
    expect(dialog).to_contain_text("bert.ipynb of grace will pass its turn on")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_have_count(0)
    row.hover()
    row.get_by_role("button", name="Yield").click()
    dialog.get_by_role("button", name="Yield").click()
    expect(dialog).to_have_count(0)
    expect(row.get_by_role("button", name="Yield")).to_be_enabled()
    assert [one["path"] for one in stage.asked()] == [f"sessions/{id_of(stage, 'bert.ipynb')}/yield"]


FAULTS = [
    (
        503,
        {"code": "backend_gone", "message": "cannot reach the backend", "detail": {}},
        "No backend answers",
        "doctor",
    ),
    (403, {"message": "Forbidden", "reason": None}, "Not authorised", "Log in again"),
    (404, {"message": "Not Found", "reason": None}, "The server part is missing", "jupyter server extension enable"),
    (
        500,
        {"code": "internal", "message": "cannot do it", "detail": {}},
        "The server reports an error",
        "log says more",
    ),
    (502, {"message": "Bad Gateway"}, "The server can’t be reached", "Check the connection"),
]


@pytest.mark.parametrize(("status", "body", "title", "advice"), FAULTS, ids=[str(fault[0]) for fault in FAULTS])
def test_a_fault_says_what_to_do_and_ends(
    sidebar: Sidebar, stage: Stage, status: int, body: dict[str, Any], title: str, advice: str
) -> None:
    stage.control(fault=[status, body])
    sidebar.command("jupyter-salus:refresh")
    expect(sidebar.notice()).to_contain_text(title)
    expect(sidebar.notice()).to_contain_text(advice)
    expect(sidebar.notice()).to_contain_text(re.compile(r"What is shown below was true \d+ s ago"))
    expect(sidebar.session("train.ipynb")).to_be_visible()
    stage.control(fault=None)
    # It may have gone on by itself meanwhile.
    sidebar.page.evaluate("() => document.querySelector('.jp-Salus-retry')?.click()")
    expect(sidebar.notice()).to_have_count(0)


def test_a_state_that_does_not_fit_is_told_as_two_versions(sidebar: Sidebar, stage: Stage) -> None:
    stage.control(state={**stage.state, "revision": stage.state["revision"] + 0.5, "devices": "none"})
    sidebar.command("jupyter-salus:refresh")
    expect(sidebar.notice()).to_contain_text("Sidebar and server don’t fit")
    expect(sidebar.notice()).to_contain_text("cannot read state.devices: expected a list")


def test_the_timeline_tells_what_was_so_at_the_cursor(sidebar: Sidebar, stage: Stage) -> None:
    plot = sidebar.panel.locator(".jp-Salus-plot")
    plot.focus()
    plot.press("End")
    expect(plot).to_have_attribute("aria-valuetext", re.compile(r"train\.ipynb: Running, Lane 1 for "))
    tip = sidebar.panel.locator(".jp-Salus-tip")
    expect(tip).to_contain_text("bert.ipynb Running, Lane 2")
    plot.press("PageUp")
    plot.press("PageUp")
    plot.press("PageUp")
    plot.press("PageUp")
    expect(tip).to_contain_text("embed.ipynb Evicted")
    expect(sidebar.panel.locator(".jp-Salus-zoom")).to_contain_text("Last 5 min")
    sidebar.panel.get_by_role("button", name="Show less time").click()
    expect(sidebar.panel.locator(".jp-Salus-zoom")).to_contain_text("Last 2 min 30 s")
    sidebar.panel.get_by_role("button", name="Show more time").click()
    expect(sidebar.panel.locator(".jp-Salus-zoom")).to_contain_text("Last 5 min")


def test_keys_alone_fold_sections_change_a_priority_and_yield(sidebar: Sidebar, stage: Stage) -> None:
    keyboard = sidebar.page.keyboard
    sidebar.command("filebrowser:activate")
    expect(sidebar.panel).not_to_be_visible()
    keyboard.press("Alt+Shift+G")
    expect(sidebar.panel).to_be_visible()
    title = sidebar.panel.get_by_role("button", name=re.compile("^gpu0"))
    title.focus()
    keyboard.press("Enter")
    expect(title).to_have_attribute("aria-expanded", "false")
    keyboard.press("Enter")
    expect(title).to_have_attribute("aria-expanded", "true")
    row = sidebar.session("train.ipynb")
    row.get_by_role("button", name="train.ipynb", exact=True).focus()
    keyboard.press("Tab")
    expect(row.get_by_role("button", name="Yield")).to_be_focused()
    expect(row.locator(".jp-Salus-actions")).to_have_css("opacity", "1")
    keyboard.press("Enter")
    expect(row.get_by_role("button", name="Yield")).to_be_enabled()
    row.get_by_role("button", name="Shut down the kernel").focus()
    keyboard.press("Tab")
    expect(row.locator("select")).to_be_focused()
    keyboard.press("ArrowUp")
    expect(row.locator("select")).to_have_value("high")
    sidebar.page.wait_for_function("() => true")
    assert [one["path"].split("/")[-1] for one in stage.asked()] == ["yield", id_of(stage, "train.ipynb")]


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_to_object_to(sidebar: Sidebar, stage: Stage, theme: str) -> None:
    sidebar.theme(theme)
    page = sidebar.page
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate((LABEXTENSION / "node_modules" / "axe-core" / "axe.min.js").read_text())
    assert violations(sidebar) == []
    stage.control(fault=[503, {"code": "backend_gone", "message": "cannot reach the backend", "detail": {}}])
    sidebar.command("jupyter-salus:refresh")
    expect(sidebar.notice()).to_be_visible()
    assert violations(sidebar) == []


def violations(sidebar: Sidebar) -> list[str]:
    found = sidebar.page.evaluate("() => axe.run('#jupyter-salus-sidebar')")["violations"]
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['failureSummary']}" for one in found]


def test_two_hundred_sessions_are_listed_filtered_and_changed(sidebar: Sidebar, stage: Stage) -> None:
    example = stage.state["sessions"][1]
    rows = [
        {**example, "id": f"many-{number}", "kernel_id": f"many-{number}", "name": f"note {number}.ipynb", "path": None}
        for number in range(200)
    ]
    stage.show({**stage.state, "sessions": rows, "lanes": []})
    names = sidebar.panel.locator(".jp-Salus-session")
    expect(names).to_have_count(200)
    expect(names.nth(10)).to_have_attribute("data-name", "note 10.ipynb")
    stage.change(*({"id": row["id"], "state": "running", "position": None, "waiting_since": None} for row in rows[::2]))
    expect(sidebar.panel.locator(".jp-Salus-session[data-state=running]")).to_have_count(100)
    sidebar.panel.get_by_label("Filter sessions").fill("note 19")
    expect(names).to_have_count(11)
    sidebar.panel.get_by_label("Filter sessions").fill("running")
    expect(names).to_have_count(100)
    sidebar.panel.get_by_label("Filter sessions").fill("")
    expect(names).to_have_count(200)


def test_rows_far_from_sight_are_drawn_when_they_come_near(sidebar: Sidebar, stage: Stage) -> None:
    example = stage.state["sessions"][1]
    rows = [{**example, "id": f"far-{number}", "name": f"far {number:03}.ipynb", "path": None} for number in range(90)]
    stage.show({**stage.state, "sessions": rows})
    last = sidebar.session("far 089.ipynb")
    expect(last).to_have_count(1)
    expect(last.locator("select")).to_have_count(0)
    last.scroll_into_view_if_needed()
    expect(last.get_by_label("Priority of far 089.ipynb")).to_be_visible()


def test_a_long_queue_is_cut_until_it_is_asked_for(sidebar: Sidebar, stage: Stage) -> None:
    example = stage.state["sessions"][1]
    rows = [
        {**example, "id": f"line-{number}", "name": f"line {number}.ipynb", "position": number, "path": None}
        for number in range(1, 13)
    ]
    stage.show({**stage.state, "sessions": rows})
    queue = sidebar.queue("gpu0/1")
    expect(queue).to_have_text([f"line {number}.ipynb" for number in range(1, 6)])
    sidebar.lane("gpu0/1").get_by_role("button", name="7 more").click()
    expect(queue).to_have_count(12)
    sidebar.lane("gpu0/1").get_by_role("button", name="Show fewer").click()
    expect(queue).to_have_count(5)


def test_the_running_panel_has_a_section(sidebar: Sidebar, stage: Stage) -> None:
    sidebar.command("running:show-panel")
    section = sidebar.page.locator("#jp-running-sessions")
    expect(section).to_contain_text("embed.ipynb")
    expect(section).not_to_contain_text("bert.ipynb")
    sidebar.command("jupyter-salus:show")
    expect(sidebar.panel).to_be_visible()


def test_actions_are_in_the_palette_and_the_kernel_menu(sidebar: Sidebar, stage: Stage) -> None:
    page = sidebar.page
    page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").click()
    page.locator(".lm-Menu-itemLabel", has_text="GPU Lanes").hover()
    submenu = page.locator("#jp-mainmenu-kernel-salus")
    for label in ("Yield the GPU", "Evict from the GPU", "Restore to the GPU", "GPU priority: High"):
        expect(submenu).to_contain_text(label)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    sidebar.command("apputils:activate-command-palette")
    palette = page.locator("#modal-command-palette")
    expect(palette).to_contain_text("Show GPU Lanes")
    page.keyboard.press("Escape")
    expect(palette).not_to_be_visible()


def test_kernels_without_sessions_are_told_as_unmanaged(sidebar: Sidebar, stage: Stage, lab: Lab) -> None:
    page = sidebar.page
    kernel = page.evaluate(
        "() => window.jupyterapp.serviceManager.kernels.startNew({name: 'python3'}).then(one => one.id)"
    )
    try:
        expect(sidebar.notice()).to_contain_text("1 kernel isn’t managed")
        expect(sidebar.notice()).to_contain_text("--ServerApp.kernel_manager_class=jupyter_salus.Manager")
    finally:
        page.evaluate("id => window.jupyterapp.serviceManager.kernels.shutdown(id)", kernel)
    expect(sidebar.notice()).to_have_count(0)


def test_a_refusal_on_somebody_elses_notebook_takes_its_controls_away(sidebar: Sidebar, stage: Stage) -> None:
    """Last in this module: the page learns by it that this person is no administrator."""
    stage.control(refusal=[403, {"code": "not_allowed", "message": "cannot yield: it is grace's", "detail": {}}])
    row = sidebar.session("bert.ipynb")
    row.hover()
    row.get_by_role("button", name="Yield").click()
    sidebar.page.locator(".jp-Dialog").get_by_role("button", name="Yield").click()
    expect(sidebar.toast("bert.ipynb wasn’t asked to yield.")).to_be_visible()
    expect(row.get_by_role("button")).to_have_count(0)
    expect(row.locator("select")).to_have_count(0)
    expect(sidebar.session("train.ipynb").locator("select")).to_have_count(1)
    policy = sidebar.panel.get_by_label("Policy of NVIDIA A100-SXM4-40GB").first
    policy.select_option("pack")
    expect(sidebar.page.locator(".jp-Dialog")).to_contain_text("also for 2 notebooks of other people")
    sidebar.page.locator(".jp-Dialog").get_by_role("button", name="Change it").click()
    expect(sidebar.panel.locator(".jp-Salus-policy select")).to_have_count(0)
    expect(sidebar.panel.locator(".jp-Salus-policy").first).to_contain_text("Fair shares")

"""The log checker itself: a good log passes, and each rule that a log can break is seen."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.simulate.log_checker import Facts, Violation, check_lines

Line = dict[str, Any]


def line(
    t: float, event: str, job: str | None, *, lane: str | None = None, p: float | None = 4, e: float | None = 6
) -> Line:
    return {"t": t, "event": event, "job": job, "device": "gpu0", "lane": lane, "p_mib": p, "e_mib": e}


def facts(**more: Any) -> Facts:
    """Two jobs of two iterations of a second each, P 4 and E 6 MiB, on 20 MiB."""
    job = {"model_name": "net_1", "iterations": "2", "submit_time": "0"}
    profile = {"p": 4.0, "e": 6.0, "iteration_s": 1.0, "share": 1.0}
    return Facts(20.0, {"net_1": profile}, {"a": dict(job), "b": dict(job)}, switch_s=0.5, move_s=1.0, **more)


def taking_turns() -> list[Line]:
    """Both jobs in one lane, an iteration each in turn."""
    lines = [line(0, "arrive", "a"), line(0, "arrive", "b"), line(0, "lane_size", None, lane="l", p=None)]
    for job in "ab":
        lines += [line(0, "resident", job), line(0, "member", job, lane="l")]
    t = 0.0
    for turn, job in enumerate("abab"):
        lines.append(line(t, "run", job, lane="l"))
        t += 1.0
        lines += [line(t, "iteration", job, lane="l"), line(t, "stop", job, lane="l", e=0)]
        if turn >= 2:
            lines.append(line(t, "finish", job))
        t += 0.5
    return [*lines, line(t, "lane_size", None, lane="l", p=None, e=0)]


def test_a_good_log_passes_and_is_summed_up():
    books = check_lines(taking_turns(), facts())
    assert (books.makespan_s, books.finished, books.resident_max, books.lanes_max) == (5.5, 2, 2, 1)
    assert books.jct_avg_s == pytest.approx((4.0 + 5.5) / 2)
    assert books.committed_max_mib == 14.0


def test_two_lanes_halve_the_speed_of_jobs_that_use_the_whole_device():
    lines = [line(0, "arrive", job) for job in "ab"]
    for job in "ab":
        lines += [line(0, "resident", job), line(0, "lane_size", None, lane=job), line(0, "member", job, lane=job)]
        lines += [line(0, "run", job, lane=job)]
    for t in (2.0, 4.0):
        lines += [line(t, "iteration", job, lane=job) for job in "ab"]
    lines += [line(4.0, event, job, lane=job, e=0) for job in "ab" for event in ("stop", "finish")]
    assert check_lines(lines, facts()).makespan_s == 4.0
    with pytest.raises(Violation, match="iteration 1 ends with the work of"):
        check_lines(lines, facts(interference=0.1))


def change(index: int, **values: Any) -> list[Line]:
    lines = deepcopy(taking_turns())
    lines[index].update(values)
    return lines


def without(*events: str) -> list[Line]:
    return [entry for entry in taking_turns() if entry["event"] not in events]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (change(0, t=1.0), "it arrives at 1.0 and not at 0.0"),
        (change(2, e_mib=5.0), r"lane l has 5.0 MiB and a member that needs 6"),
        (change(3, p_mib=3.0), r"its P is 3.0 and not 4.0"),
        (change(4, e_mib=5.0), r"its E is 5.0 and not 6.0"),
        (change(8, t=0.9), "iteration 1 ends with the work of 0.9"),
        (change(10, t=1.2), "it runs without a hand-over"),
        (change(2, e_mib=20.0), r"28\.000 MiB are committed of 20.0"),
        (without("resident"), "isn't resident"),
        (without("member"), "is a member of None"),
        (without("finish"), "lane l has 0 MiB and a member that needs 6"),
        (without("iteration"), "job a is in lane l in mid-iteration"),
        (
            [entry for entry in taking_turns() if (entry["t"], entry["event"]) != (4.0, "iteration")],
            "after 1 of 2 iterations",
        ),
        (without("stop"), "job a is in lane l in mid-iteration"),
        (taking_turns()[:-2], "job b never finishes"),
        ([line(0, "arrive", "a"), line(0, "refuse", "a")], "alone it would fit"),
        ([line(0, "arrive", "c")], "there is no job c"),
        ([line(0, "dance", "a")], "'dance' is no event"),
        ([line(0, "run", "a", lane="l")], "which isn't there"),
        ([{"t": 0.0}], "its fields are"),
    ],
)
def test_what_breaks_a_rule_is_seen(lines, why):
    with pytest.raises(Violation, match=why):
        check_lines(lines, facts())


def test_running_on_after_an_eviction_without_the_time_of_a_return_is_seen():
    lines = taking_turns()
    start = next(index for index, entry in enumerate(lines) if entry["event"] == "run" and entry["t"] == 3.0)
    moved = [line(2.5, "evict", "a"), line(2.5, "resident", "a"), line(2.5, "member", "a", lane="l")]
    with pytest.raises(Violation, match="before its return can be done"):
        check_lines([*lines[:start], *moved, *lines[start:]], facts())


def test_a_stopped_iteration_keeps_its_memory_beside_the_lane():
    lines = [*taking_turns()[:8], line(0.5, "stop", "a", lane="l", e=6)]
    lines += [line(1.0, "run", "b", lane="l"), line(2.0, "iteration", "b", lane="l")]
    with pytest.raises(Violation, match="never finishes"):
        check_lines(lines, facts())
    with pytest.raises(Violation, match=r"20\.000 MiB are committed of 19"):
        check_lines(lines, Facts(19.0, facts().profiles, facts().jobs, switch_s=0.5))

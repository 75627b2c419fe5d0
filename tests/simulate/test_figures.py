"""The figures of the acceptance cases, as far as they take seconds. All of them: `python -m benchmarks.policies`."""

from __future__ import annotations

import pytest

from benchmarks.policies import (
    TRACE,
    TRACE_CAPACITY_MIB,
    WORKLOADS,
    Figure,
    big_waiter,
    growth,
    inference,
    priorities,
    small_jobs,
    value,
    wait_bound,
)


def missed(figures) -> list[Figure]:
    return [figure for figure in figures if not figure.reached]


@pytest.mark.parametrize(("knowledge", "better"), [("declared", 3.53), ("progress", 3.50)])
def test_the_trace_under_srtf_is_as_much_faster_on_average(bench, knowledge, better):
    alone = bench.exclusive(TRACE, WORKLOADS, TRACE_CAPACITY_MIB)
    bench.checked = False
    report, _ = bench.play(TRACE, WORKLOADS, "srtf", TRACE_CAPACITY_MIB, knowledge=knowledge)
    assert value(alone.jct_avg_s) / value(report.jct_avg_s) >= better
    assert report.wait_max_s <= wait_bound(bench.config.max_wait_s, 100)
    assert report.jobs_finished == 100


@pytest.mark.parametrize("policy", ["fifo", "pack", "srtf"])
def test_42_inference_jobs_are_all_resident_and_share_what_is_free(bench, policy):
    assert missed(inference(bench, [policy], ["shuffled"], [0.5])) == []


@pytest.mark.parametrize(("policy", "count", "iterations"), [("pack", 40, 500), ("fifo", 40, 500), ("fair", 20, 120)])
def test_small_jobs_run_side_by_side_as_far_as_it_pays(bench, policy, count, iterations):
    # A part of the case; the last few jobs, which run alone, weigh more in it.
    for figure in small_jobs(bench, [policy], count=count, iterations=iterations):
        assert figure.value >= 0.95 * figure.target, figure


def test_low_priorities_get_their_turn_and_hardly_delay_the_high_ones(bench):
    assert missed(priorities(bench)) == []


def test_a_waiter_that_needs_the_device_does_not_keep_small_jobs_from_it(bench):
    bench.checked = False
    assert missed(big_waiter(bench)) == []


def test_two_jobs_that_grow_past_the_device_both_finish(bench):
    assert missed(growth(bench)) == []

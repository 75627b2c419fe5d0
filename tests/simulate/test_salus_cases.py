"""Cases of the Salus paper's artifacts, as relations that must hold on any hardware."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.policies import CASES, SHARES, WORKLOADS, Bench
from jupyter_salus.backend.core.config import Config
from tests.simulate.stories import device_seconds, iterations_between, residents_at, story

GIB_MIB = 1024
CAPACITY_MIB = 14_336
SEPARATE = {"fair", "fifo", "srtf", "pack", "priority"}


def inference_peaks() -> list[tuple[float, float]]:
    """(P, E) of the 42 inference jobs: the 14 models as listed, three rounds."""
    with (CASES / "inference.csv").open() as file:
        return [(float(row["persistent_mib"]), float(row["ephemeral_mib"])) for row in csv.DictReader(file)] * 3


def inference_files(bench: Bench) -> tuple[Path, Path]:
    with (CASES / "inference.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = [f"{row['model']}_{row['batch']}" for row in rows] * 3
    return bench.trace("t", [{"model_name": name, "iterations": 200} for name in names]), CASES / "inference.csv"


def test_a1_one_lane_holds_42_inference_jobs(bench):
    jobs = inference_peaks()
    needed = sum(p for p, _ in jobs) + max(e for _, e in jobs)
    trace, profiles = inference_files(bench)
    report, _ = bench.play(trace, profiles, "fair", config=Config(lanes="one"))
    assert report.max_resident_sessions == 42
    assert report.max_lanes == 1
    assert report.peak_committed_mib == pytest.approx(needed, abs=0.01)
    assert round(needed) == 13_027
    assert report.evictions == 0


@pytest.mark.parametrize(("capacity_gib", "bins"), [(14.0, 6), (15.0, 6), (15.5, 5)])
def test_a2_static_partitions_need_five_or_six_devices(capacity_gib, bins):
    room: list[float] = []
    for peak in sorted((p + e for p, e in inference_peaks()), reverse=True):
        for index, free in enumerate(room):
            if peak <= free:
                room[index] -= peak
                break
        else:
            room.append(capacity_gib * GIB_MIB - peak)
    assert len(room) == bins


def admitted_by_the_papers_rule(jobs: list[tuple[float, float]], *, check_persistent: bool) -> tuple[int, float]:
    """The paper's search for a lane, typed in: jobs admitted and MiB committed."""
    lanes: list[float] = []
    persistent, count = 0.0, 0
    for p, e in jobs:
        if persistent + p + sum(lanes) + e <= CAPACITY_MIB:
            lanes.append(e)
        elif any(size >= e for size in lanes) and (not check_persistent or persistent + p + sum(lanes) <= CAPACITY_MIB):
            pass
        else:
            grown = next(
                (size for size in sorted(lanes) if e > size and persistent + p + sum(lanes) - size + e <= CAPACITY_MIB),
                None,
            )
            if grown is None:
                continue
            lanes[lanes.index(grown)] = e
        persistent, count = persistent + p, count + 1
    return count, persistent + sum(lanes)


def test_a3_lanes_that_only_open_strand_memory_and_ours_merge(bench):
    count, committed = admitted_by_the_papers_rule(inference_peaks(), check_persistent=False)
    assert count >= 39
    assert committed > CAPACITY_MIB
    count, committed = admitted_by_the_papers_rule(inference_peaks(), check_persistent=True)
    assert 10 <= count <= 35
    assert committed <= CAPACITY_MIB
    trace, profiles = inference_files(bench)
    for policy in ("fair", "pack"):
        report, _ = bench.play(trace, profiles, policy)
        assert report.max_resident_sessions == 42
        assert report.evictions == 0


def test_a6_two_growing_jobs_take_one_lane_and_both_finish(bench):
    profiles = bench.profiles(
        "p", [{"model": "growing", "persistent_mib": 1024, "ephemeral_mib": 6144, "iteration_ms": 200}]
    )
    trace = bench.trace("t", [{"model_name": "growing_1", "growth_mib": 2048, "iterations": 20}] * 2)
    report, books = bench.play(trace, profiles, "fair", 12 * 1024, memory="learned")
    assert report.jobs_finished == 2
    assert report.jobs_refused == ()
    assert report.evictions <= 1
    assert books is not None
    assert report.makespan_s == pytest.approx(8.0, rel=0.1)


def test_a7_three_jobs_have_the_whole_a_half_and_a_third_of_the_device(bench):
    trace = bench.trace(
        "t",
        [
            {"job_id": name, "model_name": "inception3_50", "iterations": iterations, "submit_time": begin}
            for name, iterations, begin in (("a", 145, 0), ("b", 75, 15), ("c", 35, 30))
        ],
    )
    lines, report = story(bench, trace, WORKLOADS, "fair", CAPACITY_MIB)
    alone = iterations_between(lines, 1, 14)
    assert alone["a"] == pytest.approx(13 / 0.362, abs=1)
    # An arrival's short-cell credit and what the others get for it afterwards take some seconds.
    two = iterations_between(lines, 20, 30)
    assert two["a"] == pytest.approx(two["b"], abs=3)
    three = iterations_between(lines, 38, 58)
    assert max(three.values()) - min(three.values()) <= 3
    for begin, end, counts in ((1, 14, alone), (20, 30, two), (38, 58, three)):
        assert sum(counts.values()) == pytest.approx((end - begin) / 0.362, rel=0.05)
    assert report.makespan_s == pytest.approx(255 * 0.362, rel=0.02)


def test_a8_five_jobs_have_equal_device_time(bench):
    begins = (0, 15, 20, 25, 30)
    trace = bench.trace(
        "t",
        [
            {"job_id": f"j{number}", "model_name": "inception3_50", "iterations": 58, "submit_time": begin}
            for number, begin in enumerate(begins)
        ],
    )
    lines, report = story(bench, trace, WORKLOADS, "fair", CAPACITY_MIB)
    # The first one, which was alone for long, is through by then, and all short-cell credit is paid back.
    seconds = device_seconds(lines, 45, 75)
    assert sorted(seconds) == ["j1", "j2", "j3", "j4"]
    config = Config()
    assert max(seconds.values()) - min(seconds.values()) <= 2 * config.quantum_limit_s + 0.362
    assert report.makespan_s == pytest.approx(5 * 58 * 0.362, rel=0.02)


def test_a9_a_short_job_that_comes_late_finishes_near_its_own_time(bench):
    trace = bench.trace(
        "t",
        [
            {"job_id": "long", "model_name": "inception3_25", "iterations": 1298},
            {"job_id": "short", "model_name": "alexnet_100", "iterations": 508, "submit_time": 60},
        ],
    )
    lines, report = story(bench, trace, WORKLOADS, "srtf", CAPACITY_MIB)
    end = next(line["t"] for line in lines if line["event"] == "finish" and line["job"] == "short")
    assert end - 60 <= 1.05 * 508 * 0.045
    assert report.makespan_s == pytest.approx(1298 * 0.198 + 508 * 0.045, rel=0.01)


def test_a10_residents_rise_like_stairs(bench):
    steps = (
        ("resnet50_50", 265),
        ("googlenet_100", 200),
        ("inception3_25", 170),
        ("vgg16_50", 50),
        ("overfeat_100", 80),
    )
    trace = bench.trace(
        "t",
        [{"model_name": name, "iterations": count, "submit_time": 10 * at} for at, (name, count) in enumerate(steps)],
    )
    lines, _ = story(bench, trace, WORKLOADS, "fair", CAPACITY_MIB)
    assert [residents_at(lines, 10 * at + 5) for at in range(5)] == [1, 2, 3, 4, 5]
    assert residents_at(lines, lines[-1]["t"] + 1) == 0


@pytest.mark.parametrize(("profiles", "density"), [(SHARES, 2), (WORKLOADS, 1)])
def test_a11_density_is_as_many_as_the_device_carries(bench, profiles, density):
    alone = 2726 * 0.021
    reached = 1
    for count in range(2, 5):
        trace = bench.trace("t", [{"model_name": "alexnet_25", "iterations": 2726}] * count)
        report, _ = bench.play(trace, profiles, "pack", CAPACITY_MIB)
        assert report.jct_avg_s is not None
        if report.jct_avg_s > 1.1 * alone:
            break
        reached = count
    assert reached == density


def test_a12_two_jobs_are_as_fast_as_side_by_side_without_us(bench):
    trace = bench.trace("t", [{"model_name": "alexnet_25", "iterations": 2307}] * 2)
    report, _ = bench.play(trace, SHARES, "pack", CAPACITY_MIB)
    assert report.makespan_s <= 1.02 * 2307 * 0.021 * max(1.0, 2 * 0.45)


def test_a18_a_second_round_finds_the_device_as_the_first_did(bench):
    steps = (("inception3_100", 165), ("resnet50_50", 798), ("resnet152_75", 19))
    rows = [
        {"model_name": name, "iterations": count, "submit_time": begin} for begin in (0, 1000) for name, count in steps
    ]
    lines, report = story(bench, bench.trace("t", rows), WORKLOADS, "fair", 15_360)
    assert report.jobs_finished == 6
    assert residents_at(lines, 999) == 0
    ends = [line["t"] for line in lines if line["event"] == "finish"]
    assert max(ends[3:]) - 1000 == pytest.approx(max(ends[:3]), rel=0.02)


@pytest.mark.parametrize("policy", sorted(SEPARATE))
def test_a19_many_short_jobs_leave_nothing_behind(bench, policy):
    rows = [
        {"model_name": name, "iterations": 3 + number % 5, "submit_time": 0.4 * number}
        for number in range(10)
        for name in ("inception4_25", "inception3_50")
    ]
    lines, report = story(bench, bench.trace("t", rows), WORKLOADS, policy, CAPACITY_MIB)
    assert report.jobs_finished == 20
    sizes = {line["lane"]: line["e_mib"] for line in lines if line["event"] == "lane_size"}
    assert set(sizes.values()) == {0}
    assert residents_at(lines, lines[-1]["t"] + 1) == 0


def test_a21_under_fair_the_makespan_is_the_sum_of_all_work(bench):
    rows = [{"model_name": "overfeat_50", "iterations": 424}] * 3 + [
        {"model_name": "resnet50_50", "iterations": 265}
    ] * 3
    report, _ = bench.play(bench.trace("t", rows), WORKLOADS, "fair", CAPACITY_MIB)
    work = 3 * 424 * 0.064 + 3 * 265 * 0.226
    assert work <= report.makespan_s <= 1.015 * work

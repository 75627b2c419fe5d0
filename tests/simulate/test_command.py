"""The command: options, figures, exit codes, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_salus.simulate.command import main
from tests.simulate.log_checker import Facts, check_log

PROFILES = """model,batch,persistent_mib,ephemeral_mib,iteration_ms,startup_s,gpu_share
small,1,100,1000,20,3,0.4
large,1,600,9000,100,5,1
giant,1,900,20000,100,5,1
"""
TRACE = """job_id,model_name,iterations,submit_time,duration,priority
0,large_1,100,0,10,low
1,small_1,100,1,2,high
2,small_1,150,1,3,normal
3,large_1,30,2,3,normal
"""
FIGURES = [
    "makespan_s",
    "jct_avg_s",
    "jct_p50_s",
    "jct_p95_s",
    "queue_avg_s",
    "wait_max_s",
    "jobs_finished",
    "jobs_refused",
    "max_resident_sessions",
    "max_lanes",
    "peak_committed_mib",
    "capacity_mib",
    "switches",
    "evictions",
    "moves",
    "moved_mib",
    "decisions",
    "decision_us_p50",
    "decision_us_p99",
]


@pytest.fixture
def files(tmp_path) -> Path:
    (tmp_path / "p.csv").write_text(PROFILES)
    (tmp_path / "t.csv").write_text(TRACE)
    return tmp_path


def arguments(files: Path, *more: str, capacity: str = "12000") -> list[str]:
    return [str(files / "t.csv"), "--profiles", str(files / "p.csv"), "--capacity-mib", capacity, *more]


def figures(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("policy", ["fair", "fifo", "pack", "srtf", "priority"])
def test_json_has_every_figure(files, capsys, policy):
    assert main(arguments(files, "--policy", policy, "--json")) == 0
    shown = figures(capsys)
    assert list(shown) == FIGURES
    assert (shown["jobs_finished"], shown["jobs_refused"], shown["capacity_mib"]) == (4, [], 12_000)
    assert 0 < shown["decision_us_p50"] <= shown["decision_us_p99"]
    assert 15 <= shown["makespan_s"] <= 20


def test_text_has_every_figure(files, capsys):
    assert main(arguments(files)) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in FIGURES)


def test_log_tells_the_whole_run(files, capsys):
    assert main(arguments(files, "--policy", "srtf", "--log", str(files / "log"), "--json")) == 0
    books = check_log(files / "log", Facts.read(files / "t.csv", files / "p.csv", 12_000))
    shown = figures(capsys)
    assert books.makespan_s == pytest.approx(shown["makespan_s"])
    assert books.jct_avg_s == pytest.approx(shown["jct_avg_s"])
    assert books.resident_max == shown["max_resident_sessions"]
    assert books.evictions == shown["evictions"]
    assert books.committed_max_mib == pytest.approx(shown["peak_committed_mib"])


def test_what_alone_is_too_large_is_refused_at_arrival(files, capsys):
    with (files / "t.csv").open("a") as file:
        file.write("g,giant_1,5,3,1,normal\n")
    assert main(arguments(files, "--json", "--log", str(files / "log"))) == 1
    ours = figures(capsys)
    assert main(arguments(files, "--json", "--exclusive")) == 1
    alone = figures(capsys)
    assert ours["jobs_refused"] == alone["jobs_refused"] == ["g"]
    assert ours["jobs_finished"] == alone["jobs_finished"] == 4
    lines = [json.loads(line) for line in (files / "log").read_text().splitlines()]
    assert [(line["t"], line["event"]) for line in lines if line["job"] == "g"] == [(3.0, "arrive"), (3.0, "refuse")]


def test_exclusive_runs_one_job_at_a_time(files, capsys):
    assert main(arguments(files, "--exclusive", "--json", "--log", str(files / "log"))) == 0
    shown = figures(capsys)
    assert shown["makespan_s"] == pytest.approx(10 + 2 + 3 + 3)
    assert shown["max_resident_sessions"] == 1
    check_log(files / "log", Facts.read(files / "t.csv", files / "p.csv", 12_000, switch_s=0.0))


def test_lanes_off_and_one_are_what_they_say(files, capsys):
    assert main(arguments(files, "--lanes", "one", "--json")) == 0
    assert figures(capsys)["max_lanes"] == 1
    assert main(arguments(files, "--lanes", "off", "--json", "--log", str(files / "log"))) == 0
    lane_of: dict[str, str] = {}
    for line in map(json.loads, (files / "log").read_text().splitlines()):
        if line["event"] == "member":
            assert line["lane"] not in lane_of.values() or lane_of.get(line["job"]) == line["lane"]
            lane_of[line["job"]] = line["lane"]
        elif line["event"] in ("park", "evict", "finish"):
            lane_of.pop(line["job"], None)


def test_startup_is_host_work_that_overlaps(files, capsys):
    assert main(arguments(files, "--json", "--policy", "fifo")) == 0
    plain = figures(capsys)["makespan_s"]
    assert main(arguments(files, "--json", "--policy", "fifo", "--startup")) == 0
    assert plain + 3 <= figures(capsys)["makespan_s"] <= plain + 5.5


def test_host_memory_bounds_what_is_moved_out(files, capsys):
    (files / "t.csv").write_text(
        "job_id,model_name,iterations,submit_time,duration\n" + "".join(f"{n},large_1,40,{n},4\n" for n in range(8))
    )
    assert main(arguments(files, "--json", "--policy", "srtf", "--host-mib", "600", capacity="10500")) == 0
    shown = figures(capsys)
    assert shown["jobs_finished"] == 8
    assert main(arguments(files, "--json", "--policy", "srtf", "--host-mib", "0", capacity="10500")) == 0
    assert figures(capsys)["evictions"] == 0


def test_devices_share_the_jobs(files, capsys):
    assert main(arguments(files, "--json", "--devices", "2", "--log", str(files / "log"))) == 0
    assert figures(capsys)["makespan_s"] < 13
    check_log(files / "log", Facts.read(files / "t.csv", files / "p.csv", 12_000))


def test_knowledge_memory_and_history_are_taken(files, capsys):
    (files / "h.csv").write_text("model_name,duration_s\nsmall_1,2\nlarge_1,10\n")
    for more in (
        ["--knowledge", "declared"],
        ["--knowledge", "none", "--history", str(files / "h.csv")],
        ["--memory", "learned", "--max-wait", "5"],
        ["--interference", "0.1", "--switch-ms", "0", "--move-ms", "1", "--move-gib-s", "10"],
    ):
        assert main(arguments(files, "--policy", "srtf", "--json", *more)) == 0
        assert figures(capsys)["jobs_finished"] == 4


@pytest.mark.parametrize(
    "more",
    [
        ["--policy", "best"],
        ["--knowledge", "all"],
        ["--lanes", "two"],
        ["--devices", "0"],
        ["--devices", "x"],
        ["--capacity-mib", "0"],
        ["--capacity-mib", "nan"],
        ["--interference", "1"],
        ["--interference", "-0.1"],
        ["--move-gib-s", "0"],
        ["--max-wait", "never"],
        ["--sideways"],
    ],
)
def test_bad_options_are_bad_usage(files, capsys, more):
    assert main(arguments(files, *more)) == 2
    assert more[0] in capsys.readouterr().err


def test_what_is_missing_is_named(files, capsys):
    assert main([]) == 2
    assert "cannot simulate without TRACE.csv" in capsys.readouterr().err
    assert main([str(files / "t.csv")]) == 2
    assert "cannot simulate without --profiles" in capsys.readouterr().err
    assert main([str(files / "t.csv"), "--profiles", str(files / "p.csv")]) == 2
    assert "cannot simulate without --capacity-mib" in capsys.readouterr().err


def test_a_malformed_file_is_bad_usage_and_told_with_line_and_column(files, capsys):
    with (files / "t.csv").open("a") as file:
        file.write("9,small_1,many,3,1,normal\n")
    assert main(arguments(files)) == 2
    assert "t.csv, line 6, column 'iterations': 'many' isn't a whole number" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_told(files, capsys):
    assert main(arguments(files, "--log", str(files / "none" / "log"))) == 2
    assert "cannot write" in capsys.readouterr().err


def test_help_is_no_failure(capsys):
    assert main(["--help"]) == 0
    assert "--knowledge" in capsys.readouterr().out


def test_it_runs_as_a_module(files):
    command = [sys.executable, "-m", "jupyter_salus.simulate", *arguments(files, "--json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["jobs_finished"] == 4

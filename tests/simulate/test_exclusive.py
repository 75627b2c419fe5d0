"""One job at a time: the yardstick of all other runs, and the log checker's first customer."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_salus.simulate.exclusive import run_exclusive
from jupyter_salus.simulate.log import Log
from jupyter_salus.simulate.model import DeviceModel
from jupyter_salus.simulate.profiles import read_profiles
from jupyter_salus.simulate.table import MIB
from jupyter_salus.simulate.trace import read_trace
from tests.simulate.log_checker import Facts, check_log

CASES = Path(__file__).parent.parent / "cases"
CAPACITY_MIB = 15_360


@pytest.fixture(scope="module")
def jobs():
    return read_trace(CASES / "trace100.csv", read_profiles(CASES / "workloads.csv"))


def test_the_trace_takes_what_its_work_takes_and_9983_s_on_average(jobs):
    report = run_exclusive(jobs, DeviceModel(CAPACITY_MIB * MIB), Log(None)).report()
    assert report.jct_avg_s == pytest.approx(9_983, abs=1)
    assert report.makespan_s == pytest.approx(20_731.5, abs=1)
    assert (report.jobs_finished, report.jobs_refused, report.max_resident_sessions) == (100, (), 1)
    assert report.peak_committed_mib == 14_171 + 822


def test_its_log_amounts_to_its_figures(jobs, tmp_path):
    first = [job for job in jobs[:40] if job.iterations < 3000]
    path, trace = tmp_path / "log", tmp_path / "t.csv"
    rows = [f"{job.job_id},{job.workload.name},{job.iterations},{job.submit_s},0" for job in first]
    trace.write_text("\n".join(["job_id,model_name,iterations,submit_time,duration", *rows]))
    with path.open("w") as stream:
        report = run_exclusive(first, DeviceModel(CAPACITY_MIB * MIB), Log(stream)).report()
    books = check_log(path, Facts.read(trace, CASES / "workloads.csv", CAPACITY_MIB, switch_s=0.0))
    assert books.makespan_s == pytest.approx(report.makespan_s)
    assert books.jct_avg_s == pytest.approx(report.jct_avg_s)
    assert books.finished == len(first)
    assert (books.resident_max, books.lanes_max) == (1, 1)
    assert books.committed_max_mib == pytest.approx(report.peak_committed_mib)


def test_jobs_larger_than_the_device_are_refused_and_left_out_of_the_averages(jobs):
    report = run_exclusive(jobs, DeviceModel(14_000 * MIB), Log(None)).report()
    refused = {job.job_id for job in jobs if job.workload.name in ("resnet152_75", "inception4_75")}
    assert set(report.jobs_refused) == refused
    assert report.jobs_finished == 100 - len(refused)


def test_startup_runs_beside_the_jobs_before(jobs):
    plain = run_exclusive(jobs[:2], DeviceModel(CAPACITY_MIB * MIB), Log(None)).report()
    report = run_exclusive(jobs[:2], DeviceModel(CAPACITY_MIB * MIB), Log(None), startup=True).report()
    assert report.makespan_s == pytest.approx(plain.makespan_s + jobs[0].workload.startup_s)

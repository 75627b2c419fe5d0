"""Traces, profiles and histories: what is read, and that every mistake is told with its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_salus.simulate.profiles import read_profiles
from jupyter_salus.simulate.table import MIB, MalformedFile
from jupyter_salus.simulate.trace import read_history, read_trace

CASES = Path(__file__).parent.parent / "cases"
PROFILES = "model,batch,persistent_mib,ephemeral_mib,iteration_ms,startup_s"
TRACE = "job_id,model_name,iterations,submit_time,duration"
NET = f"{PROFILES}\nresnet_v2,50,339,6218,226,21\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_cases_are_read_whole():
    workloads = read_profiles(CASES / "workloads.csv")
    jobs = read_trace(CASES / "trace100.csv", workloads)
    assert len(workloads) == 33
    assert len(jobs) == 100
    assert sum(job.work_s for job in jobs) == pytest.approx(20_731.488)
    assert workloads["resnet152_75"].ephemeral_bytes == 14_171 * MIB
    assert read_profiles(CASES / "inference.csv")["vae_1"].ephemeral_bytes == round(1.5 * MIB)
    assert read_profiles(CASES / "shares.csv")["alexnet_25"].gpu_share == 0.45
    assert workloads["alexnet_25"].gpu_share == 1.0


def test_a_model_name_is_split_at_its_last_underscore(tmp_path):
    workloads = read_profiles(write(tmp_path / "p.csv", NET))
    (job,) = read_trace(write(tmp_path / "t.csv", f"{TRACE}\n0,resnet_v2_50,10,0,2\n"), workloads)
    assert job.workload.name == "resnet_v2_50"
    assert job.work_s == pytest.approx(2.26)


def test_jobs_come_in_order_of_arrival_and_ties_in_order_of_rows(tmp_path):
    workloads = read_profiles(write(tmp_path / "p.csv", NET))
    rows = "b,resnet_v2_50,1,5,1\na,resnet_v2_50,1,0,1\nd,resnet_v2_50,1,5,1\nc,resnet_v2_50,1,5,1\n"
    jobs = read_trace(write(tmp_path / "t.csv", f"{TRACE}\n{rows}"), workloads)
    assert [job.job_id for job in jobs] == ["a", "b", "d", "c"]


def test_optional_columns_have_defaults_and_empty_fields_too(tmp_path):
    workloads = read_profiles(write(tmp_path / "p.csv", NET))
    header = f"{TRACE},priority,growth_mib,device_count"
    jobs = read_trace(
        write(tmp_path / "t.csv", f"{header}\n0,resnet_v2_50,1,0,1,,,\n1,resnet_v2_50,1,0,1,high,512,1\n"), workloads
    )
    assert [(job.priority, job.growth_bytes) for job in jobs] == [("normal", 0), ("high", 512 * MIB)]


def test_columns_stand_in_any_order_and_others_are_passed_over(tmp_path):
    header, row = "note,startup_s,iteration_ms,ephemeral_mib,persistent_mib,batch,model", "x,1,10,200,100,8,net"
    workload = read_profiles(write(tmp_path / "p.csv", f"\ufeff{header}\r\n{row}\r\n"))["net_8"]
    assert (workload.persistent_bytes, workload.iteration_s) == (100 * MIB, 0.01)


def test_a_job_on_several_devices_is_told_to_be_none_of_ours(tmp_path):
    workloads = read_profiles(write(tmp_path / "p.csv", NET))
    path = write(tmp_path / "t.csv", f"{TRACE},device_count\n0,resnet_v2_50,1,0,1,2\n")
    with pytest.raises(
        MalformedFile, match="line 2, column 'device_count': 2 devices, and a simulated job runs on one"
    ):
        read_trace(path, workloads)


def test_history_keeps_durations_in_order(tmp_path):
    path = write(tmp_path / "h.csv", "model_name,duration_s\na_1,5\nb_1,7\na_1,6\n")
    assert read_history(path) == {"a_1": (5.0, 6.0), "b_1": (7.0,)}


@pytest.mark.parametrize(
    ("row", "column", "why"),
    [
        ("0,resnet_v2_50,ten,0,1", "iterations", "'ten' isn't a whole number"),
        ("0,resnet_v2_50,1.5,0,1", "iterations", "'1.5' isn't a whole number"),
        ("0,resnet_v2_50,0,0,1", "iterations", "0 is below 1"),
        ("0,resnet_v2_50,1,-1,1", "submit_time", "-1 is below 0"),
        ("0,resnet_v2_50,1,nan,1", "submit_time", "'nan' isn't a finite number"),
        ("0,resnet_v2_50,1,0,inf", "duration", "'inf' isn't a finite number"),
        ("0,resnet_v2_50,1,0,", "duration", "it is empty"),
        ("0,resnet_v2_51,1,0,1", "model_name", "no profile of 'resnet_v2_51'"),
        ("0,resnet,1,0,1", "model_name", "no profile of 'resnet'"),
        (",resnet_v2_50,1,0,1", "job_id", "it is empty"),
        ("x,resnet_v2_50,1,0,1", "job_id", "'x' is there twice"),
        ("0,resnet_v2_50,1,0", "duration", "the row ends before it"),
    ],
)
def test_a_mistake_in_a_trace_is_told_with_line_and_column(tmp_path, row, column, why):
    workloads = read_profiles(write(tmp_path / "p.csv", NET))
    path = write(tmp_path / "t.csv", f"{TRACE}\nx,resnet_v2_50,1,0,1\n{row}\n")
    with pytest.raises(MalformedFile) as caught:
        read_trace(path, workloads)
    assert caught.value.message == f"cannot read {path}, line 3, column '{column}': {why}"


@pytest.mark.parametrize(
    ("columns", "row", "column", "why"),
    [
        ("", "net,1,-5,1,1,1", "persistent_mib", "-5 is below 0"),
        ("", "net,1,5,1,0,1", "iteration_ms", "0 isn't above 0"),
        (",gpu_share", "net,1,5,1,1,1,1.5", "gpu_share", "1.5 is above 1"),
        (",gpu_share", "net,1,5,1,1,1,0", "gpu_share", "0 isn't above 0"),
    ],
)
def test_a_mistake_in_profiles_is_told_with_line_and_column(tmp_path, columns, row, column, why):
    path = write(tmp_path / "p.csv", f"{PROFILES}{columns}\n{row}\n")
    with pytest.raises(MalformedFile) as caught:
        read_profiles(path)
    assert caught.value.message == f"cannot read {path}, line 2, column '{column}': {why}"


def test_a_profile_may_stand_once(tmp_path):
    with pytest.raises(MalformedFile, match=r"line 3, column 'batch': 'resnet_v2_50' is there twice"):
        read_profiles(write(tmp_path / "p.csv", f"{NET}resnet_v2,50,1,1,1,1\n"))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1, column 'model': the header lacks it"),
        ("model,batch,persistent_mib,ephemeral_mib,iteration_ms\n", "line 1, column 'startup_s': the header lacks it"),
        (f"{PROFILES},model\n", "line 1, column 7: 'model' is there twice"),
        (f"{PROFILES}\nnet,1,2,3,4,5,6\n", "line 2, column 7: the header has 6 columns"),
        (f'{PROFILES}\n"net,1,2,3,4,5\n', "line 2, column 1: unexpected end of data"),
    ],
)
def test_a_file_of_another_shape_is_told(tmp_path, text, where):
    path = write(tmp_path / "p.csv", text)
    with pytest.raises(MalformedFile) as caught:
        read_profiles(path)
    assert caught.value.message == f"cannot read {path}, {where}"


def test_what_is_no_text_is_told(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(PROFILES.encode() + b"\nnet\xff,1,2,3,4,5\n")
    with pytest.raises(MalformedFile, match="line 2, column 4: it isn't UTF-8 text"):
        read_profiles(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(MalformedFile, match=r"cannot read .*/none\.csv: No such file"):
        read_profiles(tmp_path / "none.csv")

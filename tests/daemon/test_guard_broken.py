"""A sticky error of the driver: its session is shown as broken, with what helps, and stands in nobody's way."""

from __future__ import annotations

from tests.daemon.gpu import MIB, Gpu


def test_a_session_whose_work_ends_with_the_driver_s_error_is_broken_and_others_go_on(gpu: Gpu) -> None:
    idle, before = gpu.tensor("s2", 24 * MIB)
    child, _ = gpu.tensor("s1", 8 * MIB)
    gpu.until("s1", "holding")
    child.do("(kernels := Kernels(), on := stream(), kernels.mix(1 << 44, 1024, 1, on))[0] and None")
    row = gpu.until("s1", "broken")
    assert row["reason"]["code"] == "broken"
    assert row["reason"]["text"].startswith("can't use its device any more, restart its kernel: ")
    assert "the driver says error 700" in row["reason"]["text"]
    assert any("can't use its device any more" in text for text in gpu.words())
    # Others move for one another as before, and it goes when its process does.
    other, theirs = gpu.tensor("s3", 48 * MIB)
    assert gpu.until("s2", "evicted")["evictions"] == 1
    child.stop()
    gpu.gone("s1")
    assert gpu.digest(idle, 24 * MIB) == before
    assert gpu.digest(other, 48 * MIB) == theirs

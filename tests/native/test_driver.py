"""How a driver behaves: the stand-in, the real one, and either with the guard before it answer alike."""

from __future__ import annotations

import pytest

from tests.native.world import GRANULE, Child, ChildError, World

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 1, 2, 201
ILLEGAL_ADDRESS, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 700, 900, 901


@pytest.fixture(params=["plain", "guarded"])
def child(request: pytest.FixtureRequest, any_world: World) -> Child:
    if request.param == "plain":
        child = any_world.child(guard=None)
    else:
        any_world.backend()
        child = any_world.child()
    child.do("context = start()")
    return child


def code_of(child: Child, code: str) -> int | None:
    with pytest.raises(ChildError) as caught:
        child.do(code)
    return caught.value.code


def test_bytes_written_are_read_back(child: Child) -> None:
    child.do("a = alloc(5 << 20); data = random_bytes(5 << 20); write(a, data)")
    assert child.do("read(a, 5 << 20) == data")
    assert child.do("read(a + 12345, 1000) == data[12345:13345]")


def test_small_and_large_requests_are_told_with_the_sizes_asked_for(child: Child) -> None:
    for size in (1000, MIB - 1, MIB, 3 * MIB + 7, 70 * MIB):
        address = child.do(f"alloc({size})")
        assert child.do(f"address_range({address + size // 2})") == [address, size]
        child.do(f"free({address})")


def test_total_is_free_plus_used_and_a_request_takes_from_the_free(child: Child) -> None:
    before, total = child.do("memory()")
    child.do("a = alloc(64 << 20)")
    after, same = child.do("memory()")
    assert same == total
    assert before - after == 64 * MIB
    child.do("free(a)")
    assert child.do("memory()") == [before, total]


def test_use_seen_from_outside_grows_and_falls_with_requests(child: Child, any_world: World) -> None:
    before = any_world.used()
    child.do("a = alloc(64 << 20)")
    assert any_world.used() - before >= 64 * MIB
    child.do("free(a)")
    assert any_world.used() <= before


def test_more_than_the_device_has_is_out_of_memory_and_harms_nothing(child: Child) -> None:
    child.do("a = alloc(4 << 20); data = random_bytes(4 << 20); write(a, data)")
    assert code_of(child, "alloc(memory()[1] + (1 << 30))") == OUT_OF_MEMORY
    assert child.do("read(a, 4 << 20) == data")


def test_misuse_is_an_error(child: Child) -> None:
    assert code_of(child, "alloc(0)") == INVALID_VALUE
    assert code_of(child, "free(0x1234)") == INVALID_VALUE
    child.do("a = alloc(3 << 20)")
    assert code_of(child, "free(a + (1 << 20))") == INVALID_VALUE
    child.do("free(a)")
    assert code_of(child, "free(a)") == INVALID_VALUE
    assert code_of(child, "write(a, b'x' * 100)") == INVALID_VALUE


def test_without_a_context_nothing_is_given(child: Child) -> None:
    child.do("call('cuCtxSetCurrent', None)")
    assert code_of(child, "alloc(4 << 20)") == INVALID_CONTEXT


def test_sizes_of_virtual_memory_are_multiples_of_two_mebibytes(child: Child) -> None:
    assert child.do("got('cuMemGetAllocationGranularity', c.byref(properties()), 0)") == GRANULE
    assert code_of(child, "create(1 << 20)") == INVALID_VALUE
    assert code_of(child, "reserve(1 << 20)") == INVALID_VALUE


def test_memory_mapped_by_hand_is_used_after_access_is_set(child: Child) -> None:
    child.do("h = create(4 << 20); a = reserve(4 << 20); map_at(a, 4 << 20, h)")
    assert code_of(child, "write(a, b'x' * 100)") == INVALID_VALUE
    child.do("set_access(a, 4 << 20); data = random_bytes(4 << 20); write(a, data)")
    assert child.do("read(a, 4 << 20) == data")
    assert child.do("get_access(a)") == 3


def test_one_handle_at_two_addresses_shows_the_same_bytes(child: Child) -> None:
    child.do("a, h = mapped(2 << 20); b = reserve(2 << 20); map_at(b, 2 << 20, h); set_access(b, 2 << 20)")
    child.do("data = random_bytes(2 << 20); write(a, data)")
    assert child.do("read(b, 2 << 20) == data")


def test_a_handle_released_before_its_unmapping_stays_until_then(child: Child, any_world: World) -> None:
    child.do("a, h = mapped(16 << 20); data = random_bytes(16 << 20); write(a, data); call('cuMemRelease', h)")
    assert child.do("read(a, 16 << 20) == data")
    before = any_world.used()
    child.do("call('cuMemUnmap', a, 16 << 20)")
    assert before - any_world.used() >= 16 * MIB
    assert code_of(child, "call('cuMemRelease', h)") is not None


def test_bytes_stay_with_a_handle_that_is_unmapped_and_mapped_elsewhere(child: Child) -> None:
    child.do("a, h = mapped(2 << 20); data = random_bytes(2 << 20); write(a, data); call('cuMemUnmap', a, 2 << 20)")
    child.do("b = reserve(2 << 20); map_at(b, 2 << 20, h); set_access(b, 2 << 20)")
    assert child.do("read(b, 2 << 20) == data")


def test_unmapping_takes_several_mappings_and_gaps_at_once_but_cuts_none(child: Child) -> None:
    child.do("a = reserve(8 << 20); hs = [create(4 << 20), create(2 << 20)]")
    child.do(
        "[map_at(a + i * (4 << 20), n << 20, h) for i, (h, n) in enumerate(zip(hs, (4, 2)))]; set_access(a, 6 << 20)"
    )
    assert code_of(child, "call('cuMemUnmap', a, 2 << 20)") == INVALID_VALUE
    assert code_of(child, "call('cuMemUnmap', a + (2 << 20), 2 << 20)") == INVALID_VALUE
    child.do("write(a, b'x' * 100)")
    child.do("call('cuMemUnmap', a, 8 << 20); call('cuMemUnmap', a, 8 << 20)")
    assert code_of(child, "write(a, b'x' * 100)") == INVALID_VALUE
    child.do("call('cuMemAddressFree', a, 8 << 20)")
    assert code_of(child, "call('cuMemUnmap', a, 8 << 20)") == INVALID_VALUE


def test_a_handle_can_be_had_from_an_address_and_counts_on_its_own(child: Child) -> None:
    child.do("a, h = mapped(2 << 20)")
    child.do("again = got('cuMemRetainAllocationHandle', pointer(a))")
    child.do("p = Properties(); call('cuMemGetAllocationPropertiesFromHandle', c.byref(p), again)")
    assert child.do("(p.type, p.location.type, p.location.id)") == [1, 1, 0]
    child.do("call('cuMemRelease', h); call('cuMemRelease', again)")
    assert code_of(child, "got('cuMemRetainAllocationHandle', pointer(alloc(4 << 20)))") == INVALID_VALUE


def test_work_of_one_stream_is_done_in_its_order(child: Child) -> None:
    child.do("k = Kernels(); s = stream(); n = 1 << 18; a, b = alloc(4 * n), alloc(4 * n)")
    child.do("k.spin(0.05, s); k.fill(a, n, 5, s); k.fill(b, n, 7, s); k.add(a, b, n, s); sync(s)")
    assert child.do("words(a, n)") == [12]


def test_an_event_orders_two_streams(child: Child) -> None:
    child.do("k = Kernels(); s, t, e = stream(), stream(), event(); n = 1 << 18; a, b = alloc(4 * n), alloc(4 * n)")
    child.do("k.spin(0.1, s); k.fill(a, n, 3, s); call('cuEventRecord', e, s)")
    child.do("call('cuStreamWaitEvent', t, e, 0); k.fill(b, n, 4, t); k.add(b, a, n, t); sync(t)")
    assert child.do("words(b, n)") == [7]
    assert child.do("result('cuEventQuery', e)") == 0


def test_the_null_stream_waits_for_blocking_streams(child: Child) -> None:
    child.do("k = Kernels(); s = stream(0); n = 1 << 18; a = alloc(4 * n)")
    child.do("k.spin(0.1, s); k.fill(a, n, 9, s)")
    assert child.do("words(a, n)") == [9]


def test_a_captured_graph_does_its_work_only_when_launched(child: Child) -> None:
    child.do("k = Kernels(); s = stream(); n = 1 << 18; a, b = alloc(4 * n), alloc(4 * n)")
    child.do("k.fill(a, n, 1, s); k.fill(b, n, 1, s); sync(s)")
    child.do("begin_capture(s); k.add(a, b, n, s); k.add(b, a, n, s); g = instantiate(end_capture(s))")
    assert child.do("words(a, n)") == [1]
    child.do("[call('cuGraphLaunch', g, s) for _ in range(3)]; sync(s)")
    assert child.do("words(b, n)") == [21]


def test_a_capture_is_broken_by_a_synchronisation_from_elsewhere(child: Child) -> None:
    child.do("k = Kernels(); s = stream(); n = 1 << 10; a = alloc(4 * n); begin_capture(s, 2); k.fill(a, n, 1, s)")
    waiter = child.begin("call('cuCtxSetCurrent', context); sync()")
    with pytest.raises(ChildError) as caught:
        child.end(waiter)
    assert caught.value.code == CAPTURE_UNSUPPORTED
    assert code_of(child, "end_capture(s)") == CAPTURE_INVALIDATED


def test_a_request_in_a_capture_needs_the_relaxed_mode(child: Child) -> None:
    child.do("k = Kernels(); s = stream(); n = 1 << 10; a = alloc(4 * n); begin_capture(s, 0); k.fill(a, n, 1, s)")
    child.do("before = exchange_mode(2); b = alloc(4 << 20); exchange_mode(before)")
    child.do("g = instantiate(end_capture(s)); call('cuGraphLaunch', g, s); sync(s)")
    assert child.do("before") == 0


def test_use_of_unmapped_memory_by_a_kernel_ends_the_context(child: Child) -> None:
    child.do("k = Kernels(); a, h = mapped(2 << 20); call('cuMemUnmap', a, 2 << 20); k.fill(a, 16, 1)")
    assert code_of(child, "sync()") == ILLEGAL_ADDRESS
    assert code_of(child, "sync()") == ILLEGAL_ADDRESS


def test_the_end_of_a_context_frees_what_was_made_in_it(child: Child, any_world: World) -> None:
    before = any_world.used()
    child.do("other = start(0, primary=False); a = alloc(32 << 20)")
    assert any_world.used() - before >= 32 * MIB
    child.do("call('cuCtxDestroy_v2', other); call('cuCtxSetCurrent', context)")
    assert any_world.used() <= before + 2 * GRANULE


def test_a_reset_of_the_primary_context_frees_its_memory(child: Child, any_world: World) -> None:
    child.do("a = alloc(32 << 20)")
    before = any_world.used()
    child.do("call('cuDevicePrimaryCtxReset_v2', 0)")
    assert before - any_world.used() >= 32 * MIB
    child.do("context = start(); b = alloc(32 << 20)")
    assert child.do("address_range(b)") == [child.do("b"), 32 * MIB]


def test_attributes_of_pointers_are_told(child: Child) -> None:
    child.do("a = alloc(5 << 20)")
    context, memory_type, ordinal, start, size = 1, 2, 9, 11, 12
    assert child.do(f"attribute(a + 7, {context})") == child.do("context")
    assert child.do(f"attribute(a + 7, {memory_type}, c.c_uint)") == 2
    assert child.do(f"attribute(a + 7, {ordinal}, c.c_int)") == 0
    assert child.do(f"attribute(a + 7, {start})") == child.do("a")
    assert child.do(f"attribute(a + 7, {size})") == 5 * MIB


def test_the_memory_of_a_killed_process_is_free_again(child: Child, any_world: World) -> None:
    from tests.native.backend import until

    idle = any_world.used()
    child.do("a = alloc(64 << 20)")
    child.process.kill()
    until(lambda: any_world.used() < idle, "the bytes of the killed process")

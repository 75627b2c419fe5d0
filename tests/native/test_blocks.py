"""Memory goes out and comes back: same bytes, same addresses, and what the program does meanwhile."""

from __future__ import annotations

import pytest

from tests.native.backend import Guard
from tests.native.world import GRANULE, Child, ChildError, World

MIB = 1 << 20


class Session:
    """One guarded process with its guard's connection."""

    def __init__(self, world: World, **environment: str) -> None:
        self.world = world
        self.backend = world.backend()
        self.child: Child = world.child(**environment)
        self.child.do("context = start()")
        self.guard: Guard = self.backend.guard()
        self.moves = 0

    def out(self) -> dict[str, object]:
        self.guard.drain()
        self.moves += 1
        return self.guard.evict(self.moves)

    def back(self) -> dict[str, object]:
        self.moves += 1
        answer = self.guard.restore(self.moves)
        self.guard.easy = True
        self.guard.open()
        return answer


@pytest.fixture
def session(any_world: World) -> Session:
    return Session(any_world)


def test_blocks_come_back_with_the_same_bytes_at_the_same_addresses(session: Session) -> None:
    child = session.child
    child.do("sizes = [1 << 20, (3 << 20) + 5, 70 << 20, 2 << 20]; at = [alloc(n) for n in sizes]")
    child.do("data = [random_bytes(n) for n in sizes]; [write(a, d) for a, d in zip(at, data)]")
    for _ in range(2):
        before = session.world.used()
        out = session.out()
        assert out["bytes"] == (2 + 4 + 70 + 2) * MIB
        assert before - session.world.used() >= (2 + 4 + 70 + 2) * MIB
        back = session.back()
        assert back["bytes"] == out["bytes"]
        assert child.do("all(read(a, len(d)) == d for a, d in zip(at, data))")


def test_out_and_back_in_a_row_need_no_turn_in_between(session: Session) -> None:
    session.child.do("a = alloc(8 << 20); data = random_bytes(8 << 20); write(a, data)")
    session.guard.drain()
    for move in range(10, 16, 2):
        assert session.guard.evict(move)["bytes"] == 8 * MIB
        assert session.guard.restore(move + 1)["bytes"] == 8 * MIB
    session.guard.easy = True
    session.guard.open()
    assert session.child.do("read(a, 8 << 20) == data")


def test_memory_mapped_by_hand_comes_back_at_all_its_addresses_with_its_access(session: Session) -> None:
    child = session.child
    child.do("a, h = mapped(4 << 20); b = reserve(4 << 20); map_at(b, 4 << 20, h); set_access(b, 4 << 20, 0, 1)")
    child.do("released, r = mapped(2 << 20); call('cuMemRelease', r)")
    child.do("data = random_bytes(4 << 20); write(a, data); write(released, data[: 2 << 20])")
    session.out()
    session.back()
    assert child.do(
        "read(a, 4 << 20) == data and read(b, 4 << 20) == data and read(released, 2 << 20) == data[: 2 << 20]"
    )
    assert child.do("[get_access(a), get_access(b)]") == [3, 1]
    child.do("write(a, data[::-1])")
    assert child.do("read(b, 4 << 20) == data[::-1]")


def test_a_handle_that_is_mapped_nowhere_keeps_its_bytes(session: Session) -> None:
    child = session.child
    child.do("a, h = mapped(4 << 20); data = random_bytes(4 << 20); write(a, data); call('cuMemUnmap', a, 4 << 20)")
    assert session.out()["bytes"] == 4 * MIB
    session.back()
    child.do("b = reserve(4 << 20); map_at(b, 4 << 20, h); set_access(b, 4 << 20)")
    assert child.do("read(b, 4 << 20) == data")


def test_questions_are_answered_while_the_memory_is_out(session: Session) -> None:
    child = session.child
    child.do("a = alloc((3 << 20) + 5); m, h = mapped(4 << 20)")
    session.out()
    assert child.do("address_range(a + 9)") == [child.do("a"), 3 * MIB + 5]
    assert child.do("attribute(a + 9, 11)") == child.do("a")
    assert child.do("attribute(a + 9, 2, c.c_uint)") == 2
    assert child.do("attribute(m + 9, 2, c.c_uint)") == 2
    assert child.do("get_access(m)") == 3
    assert (
        child.do("(lambda again: call('cuMemRelease', again))(got('cuMemRetainAllocationHandle', pointer(m)))") is None
    )
    assert child.do("memory()[1]") > 0
    session.back()


def test_frees_on_what_is_out_are_bookkeeping_and_do_not_ask_for_a_turn(session: Session) -> None:
    child = session.child
    child.do("a, kept = alloc(70 << 20), alloc(4 << 20); data = random_bytes(4 << 20); write(kept, data)")
    child.do("m, h = mapped(4 << 20); n, i = mapped(4 << 20)")
    session.out()
    touches = session.guard.count("touched")
    child.do("free(a); call('cuMemUnmap', m, 4 << 20); call('cuMemRelease', h); call('cuMemAddressFree', m, 4 << 20)")
    child.do("call('cuMemRelease', i)")
    with pytest.raises(ChildError):
        child.do("free(a)")
    assert session.guard.count("touched") == touches
    assert child.state()["gate"] == "shut"
    assert session.back()["bytes"] == 8 * MIB
    assert child.do("read(kept, 4 << 20) == data")
    child.do("call('cuMemUnmap', n, 4 << 20); free(kept)")
    assert child.state()["persistent_bytes"] == 0


def test_frees_while_the_memory_is_on_its_way_are_completed_by_the_move(world: World) -> None:
    session = Session(world, SALUS_STANDIN_SLOW_US="3000")
    child, guard = session.child, session.guard
    child.do("at = [alloc(4 << 20) for _ in range(24)]; kept = alloc(4 << 20)")
    child.do("data = random_bytes(4 << 20); write(kept, data); [call('cuMemsetD8_v2', a, 1, 4 << 20) for a in at]")
    guard.drain()
    guard.say("evict_blocks", move=1)
    child.do("[free(a) for a in at[::2]]")
    guard.wait("blocks_out", move=1)
    guard.say("restore_blocks", move=2)
    child.do("[free(a) for a in at[1::2]]")
    guard.wait("blocks_back", move=2)
    guard.easy = True
    guard.open()
    assert child.do("read(kept, 4 << 20) == data")
    assert child.state()["persistent_bytes"] == 4 * MIB
    child.do("free(kept)")
    assert world.used() <= 8 * MIB + GRANULE  # the context alone, and the granule of small requests


def test_the_end_of_a_context_takes_what_is_out_with_it(session: Session) -> None:
    child = session.child
    child.do("other = start(0, primary=False); a = alloc(8 << 20); call('cuCtxSetCurrent', context)")
    child.do("b = alloc(4 << 20); data = random_bytes(4 << 20); write(b, data)")
    assert session.out()["bytes"] == 12 * MIB
    child.do("call('cuCtxDestroy_v2', other)")
    assert session.back()["bytes"] == 4 * MIB
    assert child.do("read(b, 4 << 20) == data")


def test_small_requests_stay_and_are_counted(session: Session) -> None:
    child = session.child
    child.do("small = [alloc(1000) for _ in range(300)]; write(small[0], b'x' * 1000)")
    session.out()
    assert child.state()["fixed_bytes"] == 300_000
    assert child.state()["evicted_bytes"] == 0
    session.back()
    assert child.do("read(small[0], 1000) == b'x' * 1000")
    child.do("[free(a) for a in small]")
    assert child.state()["fixed_bytes"] == 0


def test_chunks_marked_as_empty_in_this_closing_are_dropped(session: Session) -> None:
    child = session.child
    child.do("a = alloc(192 << 20) if memory()[0] > 250 << 20 else alloc(128 << 20)")
    child.do("b = alloc(4 << 20); data = random_bytes(4 << 20); write(b, data); face = c.CDLL(None)")
    child.do("mark = face.salus_guard_mark_empty; mark.argtypes = [u64, u64, u64]; size = address_range(a)[1]")
    assert child.do("mark(1, a, size)") == 0  # the gate is open: no closing is under way
    epoch = session.guard.drain()
    assert child.do(f"mark({epoch - 1}, a, size)") == 0
    assert child.do(f"mark({epoch}, a + 1, size - 1)") == child.do("size") // (64 * MIB) - 1
    out = session.guard.evict(100)
    assert out["dropped_bytes"] == child.do("size") - 64 * MIB
    session.back()
    child.do("write(a, b'y' * 1000)")
    assert child.do("read(b, 4 << 20) == data and read(a, 1000) == b'y' * 1000")


def test_marks_of_an_earlier_closing_count_no_longer(session: Session) -> None:
    child = session.child
    child.do("a = alloc(64 << 20); data = random_bytes(64 << 20); face = c.CDLL(None)")
    child.do("mark = face.salus_guard_mark_empty; mark.argtypes = [u64, u64, u64]")
    epoch = session.guard.drain()
    assert child.do(f"mark({epoch}, a, 64 << 20)") == 1
    session.guard.easy = True
    session.guard.open()
    child.do("write(a, data)")
    assert session.out()["dropped_bytes"] == 0
    session.back()
    assert child.do("read(a, 64 << 20) == data")


def test_host_memory_is_prepared_ahead_and_given_back_on_request(session: Session) -> None:
    child, guard = session.child, session.guard
    child.do("a = alloc(8 << 20)")
    guard.say("prepare_arena", bytes=32 * MIB, move=50)
    guard.wait("arena_ready", move=50)
    assert child.state()["arena_pinned_bytes"] >= 32 * MIB
    session.out()
    guard.say("drop_arena", move=51)
    assert guard.wait("move_failed", move=51)["code"] == "blocks_out"
    session.back()
    guard.say("drop_arena", move=52)
    guard.say("prepare_arena", bytes=64 * MIB, move=53)
    guard.wait("arena_ready", move=53)
    assert child.state()["arena_bytes"] == 64 * MIB


def test_an_eviction_beyond_the_granted_host_memory_is_not_begun(session: Session) -> None:
    session.child.do("a = alloc(8 << 20); data = random_bytes(8 << 20); write(a, data)")
    session.guard.drain()
    session.guard.say("evict_blocks", move=1, host_bytes=4 * MIB)
    assert session.guard.wait("move_failed", move=1)["code"] == "host_memory"
    assert session.child.state()["evicted_bytes"] == 0
    session.guard.easy = True
    session.guard.open()
    assert session.child.do("read(a, 8 << 20) == data")


def test_an_open_gate_refuses_an_eviction(session: Session) -> None:
    session.child.do("a = alloc(8 << 20)")
    session.guard.say("evict_blocks", move=1)
    assert session.guard.wait("move_failed", move=1)["code"] == "gate_open"


def test_a_return_without_room_is_tried_again_until_there_is_some(world: World) -> None:
    session = Session(world)
    child = session.child
    child.do("at = [alloc(32 << 20) for _ in range(4)]; data = random_bytes(32 << 20); [write(a, data) for a in at]")
    session.out()
    other = world.child(guard=None)
    other.do("start(); taken = alloc(160 << 20)")
    session.guard.say("restore_blocks", move=7)
    assert session.guard.wait("move_failed", move=7)["code"] == "out_of_memory"
    session.guard.open()
    assert session.guard.wait("move_failed", code="blocks_out")
    assert child.state()["gate"] == "shut"
    other.do("free(taken)")
    session.back()
    assert child.do("all(read(a, 32 << 20) == data for a in at)")


def test_what_was_exported_stays_on_the_device_and_the_rest_moves(world: World) -> None:
    session = Session(world)
    child = session.child
    child.do("a = alloc(4 << 20); m, h = mapped(4 << 20)")
    # The stand-in exports nothing: what matters here is that asking pins the chunk down.
    with pytest.raises(ChildError):
        child.do("call('cuMemExportToShareableHandle', c.byref(u64()), h, 1, 0)")
    assert session.out()["bytes"] == 4 * MIB
    assert child.state()["fixed_bytes"] == 4 * MIB


def test_peers_keep_their_access_over_a_move(world: World) -> None:
    session = Session(world, SALUS_STANDIN_DEVICES="2")
    child = session.child
    child.do(
        "a = alloc(4 << 20); data = random_bytes(4 << 20); write(a, data); there = got('cuDevicePrimaryCtxRetain', 1)"
    )
    child.do("call('cuCtxSetCurrent', there); b = alloc(4 << 20)")
    with pytest.raises(ChildError):
        child.do("call('cuMemcpyDtoD_v2', b, a, 4 << 20)")
    child.do("call('cuCtxEnablePeerAccess', context, 0)")
    session.out()
    session.back()
    child.do("call('cuMemcpyDtoD_v2', b, a, 4 << 20)")
    assert child.do("read(b, 4 << 20) == data")
    child.do("call('cuCtxDisablePeerAccess', context)")
    with pytest.raises(ChildError):
        child.do("call('cuMemcpyDtoD_v2', b, a, 4 << 20)")


def test_a_graph_captured_before_a_move_replays_after_it(session: Session) -> None:
    child = session.child
    child.do("k = Kernels(); s = stream(); n = 1 << 19; a, b = alloc(4 * n), alloc(4 * n)")
    child.do("k.fill(a, n, 1, s); k.fill(b, n, 2, s); sync(s)")
    child.do(
        "begin_capture(s); k.add(a, b, n, s); g = instantiate(end_capture(s)); call('cuGraphLaunch', g, s); sync(s)"
    )
    session.out()
    session.back()
    child.do("call('cuGraphLaunch', g, s); sync(s)")
    assert child.do("words(a, n)") == [5]


def test_what_is_freed_while_it_is_out_leaves_its_place_in_host_memory(world: World) -> None:
    backend = world.backend()
    child = world.child()
    child.do("context = start(); a = alloc(16 << 20)")
    guard = backend.guard()
    guard.drain()
    guard.evict(1)
    child.do("free(a)")
    guard.easy = True
    guard.open()
    child.do("b = alloc(24 << 20)")
    guard.drain()
    guard.say("evict_blocks", move=2, host_bytes=24 << 20)
    assert guard.wait("blocks_out", move=2)["bytes"] == 24 << 20

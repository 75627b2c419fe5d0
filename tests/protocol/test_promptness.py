"""Slices of threads, where the system knows them."""

from __future__ import annotations

import struct
import threading
from typing import Any

import pytest

from jupyter_salus.protocol import promptness
from jupyter_salus.protocol.promptness import SHORT_NS, be_as_before, be_prompt

#: As `struct sched_attr`: policy 0 or 5 (idle), and the slice.
_FORM = "=IIQiIQQQII"


class System:
    """Answers the two calls as a system would; `slice_ns` is the thread's."""

    def __init__(self, slice_ns: int, policy: int = 0, forbids: tuple[int, ...] = ()) -> None:
        self.slice_ns, self.policy, self.forbids = slice_ns, policy, forbids

    def syscall(self, number: int, _thread: int, attributes: Any, *_: int) -> int:
        if number in self.forbids:
            return -1
        if number == 2:
            attributes.raw = struct.pack(_FORM, 56, self.policy, 0, 7, 0, self.slice_ns, 0, 0, 0, 0)
        else:
            told = struct.unpack(_FORM, attributes)
            assert told[3] == 7, "the niceness stays"
            self.slice_ns = told[5]
        return 0


def on(monkeypatch: pytest.MonkeyPatch, system: System) -> System:
    monkeypatch.setattr(promptness, "_CALL", (system.syscall, 1, 2))
    return system


def test_a_thread_has_a_short_slice_until_it_takes_that_back(monkeypatch: pytest.MonkeyPatch) -> None:
    system = on(monkeypatch, System(2_800_000))
    before = be_prompt()
    assert system.slice_ns == SHORT_NS
    be_as_before(before)
    assert system.slice_ns == 2_800_000


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(System(0), id="a system that knows no slices"),
        pytest.param(System(50_000), id="a slice that is shorter already"),
        pytest.param(System(2_800_000, policy=5), id="a policy of somebody's choice"),
        pytest.param(System(2_800_000, forbids=(1,)), id="setting is forbidden"),
        pytest.param(System(2_800_000, forbids=(2,)), id="asking is forbidden"),
    ],
)
def test_nothing_changes_where_nothing_is_to_be_asked(monkeypatch: pytest.MonkeyPatch, system: System) -> None:
    slice_ns = on(monkeypatch, system).slice_ns
    assert be_prompt() is None
    be_as_before(None)
    assert system.slice_ns == slice_ns


def test_elsewhere_than_on_linux_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert promptness._system("darwin", "x86_64") is None
    assert promptness._system("linux", "sparc") is None
    monkeypatch.setattr(promptness, "_CALL", None)
    assert be_prompt() is None
    be_as_before(b"")


def test_this_system_takes_what_is_asked_or_knows_nothing_of_it() -> None:
    """In a thread of its own, which ends with its slice."""
    seen: list[bytes | None] = []

    def ask() -> None:
        seen.append(be_prompt())
        seen.append(be_prompt())
        be_as_before(seen[0])
        seen.append(be_prompt())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    first, again, anew = seen
    assert again is None, "it is short already, or nothing was done"
    assert anew == first, "it was as before"

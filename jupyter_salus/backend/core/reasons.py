"""Why a session waits, in words that a person understands: one code for machines, one sentence for people.

A sentence names sessions as `{session:ID}`; whoever shows it puts the notebook's name there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import limits
from .transitions import Residency, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .session import Session

#: The codes, with what each means.
CODES = {
    "broken": "the driver gives it errors only; a restart of its kernel helps",
    "turn": "another session has the turn",
    "draining": "the session that has the turn was asked for it and is in mid-iteration",
    "lost": "it came to no boundary in time and was counted out; others run until it comes to one",
    "no_room": "the device has too little memory free",
    "making_room": "another session is being moved out",
    "restoring": "its memory is coming back",
    "evicting": "its memory is being moved out",
    "failed_return": "its memory couldn't come back; it is tried again",
    "drained": "its device is maintained, and nobody gets a turn there",
    "user_limit": "its user's sessions have as much of the devices' memory as they may",
    "over_capacity": "it holds more than the device has; others go first",
    "silent": "it was run by an inspector; everybody else goes first",
}

#: What is said of a session that answered no attempt to stop it, wherever it is said.
COUNTED_OUT = "was counted out: it came to no boundary in time, and others run meanwhile"

#: From when on a wait tells how long the holder has come to no boundary, in seconds; each step is a change of the sentence.
SILENCES_S = (2, 5, 10, 30, 60, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `behind`: the session that is waited for, if it is a certain one."""

    code: str
    text: str
    behind: str | None = None


def amount(value: int) -> str:
    """Bytes for people."""
    size = float(value)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024.0:
            return f"{size:.0f} {unit}"
        size /= 1024.0
    return f"{size:.1f} GiB"


def reason_of(session: Session, most: Sequence[Session], now: float) -> Reason | None:
    """Why it waits; None: it doesn't. `most`: the sessions that hold most of its device, the first ones first."""
    if session.broken is not None:
        return Reason("broken", f"can't use its device any more, restart its kernel: {session.broken}")
    if session.turn is Turn.BLOCKED:
        return _room(session, session.growth.extra_bytes if session.growth is not None else 0, most)
    if session.turn is Turn.LOST:
        return Reason("lost", COUNTED_OUT)
    if session.turn is not Turn.WAITING:
        return None
    device = session.device
    if session.outside and session.growth is not None:
        text = (
            f"needs {amount(session.growth.extra_bytes)} more of the device's memory; processes outside use "
            f"{amount(device.ledger.foreign)} of it, and there is room once they need less"
        )
        return Reason("no_room", text)
    if session.residency is Residency.RESTORING:
        return Reason("restoring", f"{amount(session.out_bytes)} are coming back to the device")
    if session.residency is Residency.EVICTING:
        return Reason("evicting", f"{amount(session.held_bytes)} are being moved out to make room")
    if session.residency is Residency.EVICTED and session.retry_at > now:
        return Reason("failed_return", "its memory couldn't be brought back; it is tried again")
    if device.draining is not None:
        why = f": {device.draining}" if device.draining else ""
        return Reason("drained", f"the device is being maintained, and nobody gets a turn{why}")
    if session.overgrown:
        short = max(-device.ledger.free, 0)
        return Reason(
            "over_capacity",
            f"has grown to {amount(session.held_bytes)}, {amount(short)} more than the device has; "
            f"others go first{_who_holds(session, most)}",
        )
    if session.user.over or not limits.may_enter(session):
        return _limited(session)
    if device.holders:
        return _behind(session, most, now)
    need = session.need_bytes - session.carried_bytes + session.entry_bytes
    return _room(session, need, most)


def _limited(session: Session) -> Reason:
    """Its user has too much on devices."""
    user = session.user
    most = user.limits.persistent_bytes or 0
    text = f"its user's sessions may hold {amount(most)} on devices together and hold {amount(user.held_bytes)}"
    others = [one for one in user.sessions.values() if one is not session and one.held_bytes > 0]
    behind = max(others, key=lambda one: (one.held_bytes, -one.number), default=None)
    if user.over:
        return Reason("user_limit", f"{text}; others go first", None if behind is None else behind.id)
    text += f", and it needs {amount(session.entry_bytes)}"
    return Reason("user_limit", text, None if behind is None else behind.id)


def _behind(session: Session, most: Sequence[Session], now: float) -> Reason:
    """Somebody has the turn: the holder that gave its turn up last, else the one of longest standing."""
    device = session.device
    draining = [one for one in device.holders if one.turn in (Turn.YIELDING, Turn.STOPPING)]
    holder = draining[0] if draining else device.holders[0]
    if session.silent:
        return Reason("silent", "is run by an inspector; everybody else goes first", holder.id)
    if draining:
        text = f"waits for {{session:{holder.id}}}, which {_finishing(holder, now)}"
        return Reason("draining", text, holder.id)
    need = session.need_bytes - session.carried_bytes + session.entry_bytes
    free = device.ledger.limit - device.ledger.held - device.ledger.stopped
    if need > free:
        return _room(session, need, most)
    return Reason("turn", f"waits for {{session:{holder.id}}}, which has the device", holder.id)


def _finishing(holder: Session, now: float) -> str:
    """What is known of a holder that was asked: an iteration takes its time, and a process that is stopped never answers."""
    asked_s = now - holder.asked_at
    passed = [seconds for seconds in SILENCES_S if asked_s >= seconds]
    if not passed or asked_s < 2 * max(holder.alone_s or 0.0, holder.beside_s or 0.0):
        return "is finishing its iteration"
    return f"was asked for its turn and has come to no boundary for more than {passed[-1]} s"


def _room(session: Session, need: int, most: Sequence[Session]) -> Reason:
    """Too little memory: how much is missing, and who holds most."""
    device = session.device
    for other in device.moving.values():
        if other.residency is Residency.EVICTING and other is not session:
            return Reason("making_room", f"{{session:{other.id}}} is being moved out to make room", other.id)
    missing = max(need - max(device.ledger.free, 0), 0)
    text = (
        f"needs {amount(need)} of the device's memory, {amount(missing)} more than is free{_who_holds(session, most)}"
    )
    if device.ledger.foreign:
        text += f"; processes outside use {amount(device.ledger.foreign)}"
    others = [one for one in most if one is not session]
    return Reason("no_room", text, others[0].id if others else None)


def held_bytes(session: Session) -> int:
    """What a session has of its device, its lane's part included."""
    return session.held_bytes + session.lane_bytes + session.stopped_bytes


def _who_holds(session: Session, most: Sequence[Session]) -> str:
    """The three that hold most, in words."""
    others = [one for one in most if one is not session][:3]
    return "".join(f"; {{session:{one.id}}} holds {amount(held_bytes(one))}" for one in others)

"""Moves: who goes out for whom, and what is on its way out or back.

Victims, in the order in which they go: residents that want nothing, cheapest first (the smallest that is enough, else
the largest, so that the fewest bytes move); then, for a session that is to run now, waiting ones that come after it in
the policy's order, last first; the pinned ones of each kind after the others. No thrash: one that came back and still
wants the device stays 5 s and twenty times its move's seconds before it goes for a session of its class, and such moves
take at most 5 % of the device's time. Neither holds for interactive sessions, for the starvation bound, or where nobody
else has the device.

The ledger counts a session's bytes until `SessionEvicted`, and from `RestoreSession` on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from . import roaming
from .decisions import EvictSession, RestoreSession
from .gang import unclaim
from .transitions import Residency

if TYPE_CHECKING:
    from .device import Device
    from .session import Session
    from .state import State
    from .user import User

#: So many waiting residents are looked at, beyond those that are taken, for victims, from the last one on.
LOOK = 64


def find_victims(
    state: State, session: Session, shortage: int, staying: Collection[Session], now: float
) -> list[Session] | None:
    """Sessions whose bytes would make up for the shortage; None: there aren't enough. For a starving session those that
    there are: the others' moves were refused for now, and its room is kept.

    `staying`: sessions that are to run beside it. A holder that isn't among them is a victim once its turn is over; it
    is in the answer too, and the caller moves only those that hold no turn.
    """
    device = session.device
    if not device.moves:
        return None
    victims: list[Session] = []
    hosted: dict[User, int] = {}
    left = _from_idle(state, session, shortage, victims, hosted, now)
    if left <= 0:
        return _fewest(victims, -left)
    ledger = device.ledger
    most = ledger.held + ledger.stopped - device.going_bytes
    if session.silent or (most < shortage and not session.starving):
        return None
    budget = float("inf") if _moves_freely(state, session, now) else _budget(state, device, now)
    for pinned in (False, True):
        refused = 0
        for victim in _after(state, session, now):
            if left <= 0 or refused > LOOK:
                break
            if victim.pinned is not pinned or victim in staying or victim in victims:
                continue
            if not _can_go(state, victim, hosted, now):
                continue
            cost = _cost_s(state, session, victim, budget, now)
            if cost is None:
                refused += 1
                continue
            budget -= cost
            victims.append(victim)
            _host(victim, hosted)
            left -= _bytes_of(victim)
        if left <= 0:
            return _fewest(victims, -left)
    return victims if session.starving else None


def _after(state: State, session: Session, now: float) -> Iterator[Session]:
    """Residents that come after a session, last first; then holders, whose turns end for it if they aren't to stay."""
    place = (state.key(session, now), session.number)
    for entry in reversed(session.device.ready.entries):
        if entry[:2] <= place:
            break
        yield entry[2]
    for holder in session.device.holders:
        if holder is not session:
            yield holder


def _cost_s(state: State, session: Session, victim: Session, budget: float, now: float) -> float | None:
    """Seconds of the budget that a victim costs; None: it must not go now, and the device is looked at again then."""
    device = session.device
    if budget == float("inf") or victim.rank > session.rank or victim.outside:
        return 0.0
    if victim.stays_until > now:
        state.look_again(device, victim.stays_until, now)
        return None
    cost = device.move_s(victim.held_bytes) * 2
    if cost > budget:
        state.look_again(device, now + (cost - budget) / state.config.moves_share, now)
        return None
    return cost


def _fewest(victims: list[Session], spare: int) -> list[Session]:
    """The victims without those that turned out not to be needed, since one that was added later is enough."""
    for victim in sorted(victims, key=_bytes_of):
        if _bytes_of(victim) <= spare:
            spare -= _bytes_of(victim)
            victims.remove(victim)
    return victims


def _bytes_of(session: Session) -> int:
    return session.held_bytes + session.stopped_bytes


def _can_go(state: State, victim: Session, hosted: dict[User, int], now: float) -> bool:
    """Whether a victim's bytes can be moved out beside those of its user's that are to go already."""
    if not state.can_go(victim, now):
        return False
    return not hosted or state.host_room(victim, hosted.get(victim.user, 0)) >= 0


def _host(victim: Session, hosted: dict[User, int]) -> None:
    if victim.user.limits.host_bytes is not None:
        hosted[victim.user] = hosted.get(victim.user, 0) + _bytes_of(victim)


def _from_idle(
    state: State, session: Session, shortage: int, victims: list[Session], hosted: dict[User, int], now: float
) -> int:
    """Add idle sessions to the victims; what is still short.

    Unpinned before pinned; of each kind the smallest that is enough alone, else the largest, and so on with the rest.
    """
    left = shortage
    entries = session.device.idle.entries
    for pinned in (0.0, 1.0):
        begin, last = bisect_left(entries, ((pinned,),)), bisect_left(entries, ((pinned + 1.0,),))
        while left > 0 and last > begin:
            enough = bisect_left(entries, ((pinned, float(left)),), begin, last)
            # The first of them may be one that was refused: then the next larger, then the next smaller ones.
            for at in (*range(enough, last), *range(enough - 1, begin - 1, -1)):
                victim = entries[at][2]
                if victim is not session and _can_go(state, victim, hosted, now):
                    break
            else:
                break
            last = at
            victims.append(victim)
            _host(victim, hosted)
            left -= _bytes_of(victim)
    return left


def _moves_freely(state: State, session: Session, now: float) -> bool:
    """Whether moves for this session are beyond the rules against thrash."""
    if session.starving or not (session.device.holders or len(session.device.ready)):
        return True
    return state.interactive(session, now)


def _budget(state: State, device: Device, now: float) -> float:
    """Seconds of moves that sessions of one class may still cost each other."""
    saved = device.move_credit_s + (now - device.move_credit_at) * state.config.moves_share
    device.move_credit_s = min(saved, state.config.moves_saved_s)
    device.move_credit_at = now
    return device.move_credit_s


def evict(state: State, session: Session, reason: str, now: float, *, charged: bool = False) -> None:
    """Ask for a move out. The session's E, if it holds one outside a lane, goes along."""
    device = session.device
    unclaim(state, session, now)
    session.to_residency(Residency.EVICTING)
    if session.stopped_bytes:
        device.ledger.observe_stopped(-session.stopped_bytes)
        state.observe(session, session.stopped_bytes)
        session.stopped_bytes = 0
    device.leave_lane(session)
    if charged:
        device.move_credit_s -= 2 * device.move_s(session.held_bytes)
    device.going_bytes += session.held_bytes
    state.put_in_host(session, session.held_bytes)
    _begin(state, session, now)
    session.evict_asked = False
    state.file(session, now)
    state.outbox.append(EvictSession(session.id, session.move, reason, device.id))


def restore(state: State, session: Session, now: float) -> None:
    """Hold the room for a return and ask for it. Raises `LedgerOverdrawn` and changes nothing if there is none."""
    state.hold(session, session.out_bytes)
    session.to_residency(Residency.RESTORING)
    if session.evictable:
        session.device.fixed_bytes -= session.held_bytes - session.out_bytes
    _begin(state, session, now)
    state.file(session, now)
    state.outbox.append(RestoreSession(session.id, session.move, session.device.id))


def _begin(state: State, session: Session, now: float) -> None:
    device = session.device
    session.move = state.next_number()
    session.move_started_at = now
    device.moving[session.id] = session
    device.moves_due = max(device.moves_due, now) + device.move_s(session.held_bytes)


def evicted(state: State, session: Session, seconds: float, freed_bytes: int, now: float) -> None:
    """A move out is done: only now its bytes are free."""
    device = session.device
    device.going_bytes -= session.held_bytes
    freed = min(freed_bytes, session.held_bytes)
    session.to_residency(Residency.EVICTED)
    _learn(device, session, seconds, freed)
    state.hold(session, -freed)
    session.out_bytes = freed
    state.put_in_host(session, freed)
    if session.evictable:
        device.fixed_bytes += session.held_bytes
    session.evictions += 1
    state.file(session, now)
    roaming.seek(state, session, now)


def eviction_failed(state: State, session: Session, now: float) -> None:
    """A move out failed: nothing changed hands. It isn't asked for again for a while."""
    device = session.device
    device.going_bytes -= session.held_bytes
    session.to_residency(Residency.RESIDENT)
    state.put_in_host(session, 0)
    del device.moving[session.id]
    _keep_stopped(state, session)
    session.stays_until = now + state.config.residence_s
    session.refused_until = now + state.config.residence_s
    state.look_again(device, session.refused_until, now)
    state.file(session, now)


def restored(state: State, session: Session, seconds: float, now: float) -> None:
    """A return is done."""
    device = session.device
    session.to_residency(Residency.RESIDENT)
    _learn(device, session, seconds, session.out_bytes)
    session.stays_until = now + max(state.config.residence_s, state.config.residence_moves * seconds)
    session.out_bytes = 0
    state.put_in_host(session, 0)
    _keep_stopped(state, session)
    state.file(session, now)


def restore_failed(state: State, session: Session, now: float) -> None:
    """A return failed: the bytes are in host memory still, the room is given back."""
    session.to_residency(Residency.EVICTED)
    del session.device.moving[session.id]
    state.hold(session, -session.out_bytes)
    if session.evictable:
        session.device.fixed_bytes += session.held_bytes
    session.retry_at = now + state.config.retry_s
    state.look_again(session.device, session.retry_at, now)
    state.file(session, now)


def _keep_stopped(state: State, session: Session) -> None:
    """What a session moved with it of an iteration counts by itself again."""
    if session.mapped_bytes:
        amount = min(session.mapped_bytes, session.held_bytes)
        state.hold(session, -amount)
        session.stopped_bytes = amount
        session.device.ledger.observe_stopped(amount)


def _learn(device: Device, session: Session, seconds: float, amount: int) -> None:
    """Learn what moves cost from one that is done."""
    del device.moving[session.id]
    fixed, each = device.move_cost
    wrong = seconds - fixed - amount * each
    share = amount * each / (fixed + amount * each)
    fixed = max(fixed + 0.2 * wrong * (1.0 - share), 0.0)
    each = max(each + 0.2 * wrong * share / max(amount, 1), 0.0)
    device.move_cost = (fixed, each)

"""What each address does: parse, call, serialize."""

from __future__ import annotations

from typing import Any

from ..errors import BackendGone, BadValue, NotAllowed, UnknownDevice, UnknownSession
from .requests import SalusHandler

PRIORITIES = ("high", "normal", "low")


async def get_state(handler: SalusHandler) -> None:
    """Everything, with an ETag; 304 where the caller has it already."""
    etag, body = (await handler.feed.state()).encoded()
    handler.set_header("ETag", etag)
    handler.set_header("Cache-Control", "no-cache")
    if handler.check_etag_header():
        handler.set_status(304)
        handler.finish()
        return
    handler.finish(body)


async def get_sessions(handler: SalusHandler) -> None:
    """All sessions."""
    held = await handler.feed.state()
    handler.answer({"revision": held.revision, "as_of": held.as_of, "sessions": held.sessions()})


async def get_session(handler: SalusHandler, id: str) -> None:
    """One session."""
    row = (await handler.feed.state()).session(id)
    if row is None:
        # It may be so new that no event has told of it yet.
        await _answer_session(handler, id)
        return
    handler.answer(row)


async def get_history(handler: SalusHandler) -> None:
    """What happened after a revision."""
    since = handler.get_query_argument("since", "0")
    if not since.isdecimal() or len(since) > 18:
        raise BadValue(f"cannot read the history since {since[:80]!r}: a revision is needed", {"field": "since"})
    handler.answer(await handler.feed.history(int(since)))


async def patch_session(handler: SalusHandler, id: str) -> None:
    """Change a session's priority, or have it evicted last."""
    change = handler.body({"priority": str, "pinned": bool})
    if "priority" in change and change["priority"] not in PRIORITIES:
        raise BadValue(
            f"cannot set priority to {change['priority'][:80]!r}: it is one of {', '.join(PRIORITIES)}",
            {"field": "priority"},
        )
    if "priority" in change:
        await handler.feed.act("priority", id, change["priority"])
    if "pinned" in change:
        await handler.feed.act("pinned", id, "true" if change["pinned"] else "false")
    await _answer_session(handler, id)


async def post_yield(handler: SalusHandler, id: str) -> None:
    """Have a session give its turn to the next one."""
    await _act(handler, "yield", id)


async def post_evict(handler: SalusHandler, id: str) -> None:
    """Have an idle session's memory moved out."""
    await _act(handler, "evict", id)


async def post_restore(handler: SalusHandler, id: str) -> None:
    """Have an evicted session's memory brought back."""
    await _act(handler, "restore", id)


async def patch_device(handler: SalusHandler, id: str) -> None:
    """Change a device's policy, where this server's user may."""
    policy = handler.body({"policy": str})["policy"]
    try:
        await handler.feed.act_as_admin("policy", id, policy)
    except BackendGone as error:
        # The backend itself is there, `act_as_admin` made sure of that: it is the admin socket that can't be reached.
        if not handler.feed.connected:
            raise
        raise NotAllowed(
            f"cannot change the policy of {id[:80]!r}: the backend's admin socket can't be reached from this server",
            {"device": id[:80]},
        ) from error
    for row in (await handler.feed.fresh())["devices"]:
        if row["id"] == id:
            handler.answer(row)
            return
    raise UnknownDevice(f"cannot find the device {id[:80]!r}", {"device": id[:80]})


async def not_found(handler: SalusHandler, *_: Any) -> None:
    """Any other address under ours."""
    handler.send_error(404)


async def _act(handler: SalusHandler, verb: str, id: str) -> None:
    handler.refuse_long_body()
    await handler.feed.act(verb, id)
    await _answer_session(handler, id)


async def _answer_session(handler: SalusHandler, id: str) -> None:
    for row in (await handler.feed.fresh())["sessions"]:
        if row["id"] == id:
            handler.answer(row)
            return
    raise UnknownSession(f"cannot find the session {id[:80]!r}", {"session": id[:80]})

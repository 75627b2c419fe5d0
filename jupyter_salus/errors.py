"""The error tree: every error that a part of jupyter_salus raises on purpose, with its stable code and HTTP status.

Three branches: `UsageError` is a bug of ours, `PeerError` somebody else's mistake, `DeviceError` the machine's.
The code is what clients test for; it never changes once released. The wording starts with "cannot", and names the
thing, the amount asked and the limit. Standard library alone, Python 3.9.
"""

from __future__ import annotations

from typing import Any, Dict, Optional


class SalusError(Exception):
    """The root. `code` goes over the wire and into REST answers, `status` is the HTTP status, `detail` is JSON."""

    code = "internal"
    status = 500

    def __init__(self, message: str, detail: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail: Dict[str, Any] = dict(detail or {})


class UsageError(SalusError):
    """Ours: the caller is code of jupyter_salus and broke a promise."""

    code = "usage"


class IllegalTransition(UsageError):
    """A lane or session was asked to go where the transition table has no way; nothing has changed."""

    code = "illegal_transition"


class LedgerOverdrawn(UsageError):
    """Bytes were to be given out that the device doesn't have; nothing has changed."""

    code = "ledger_overdrawn"


class PeerError(SalusError):
    """Theirs: a frame, a message, a name or a value that can't be taken."""

    code = "bad_request"
    status = 400


class BadFrame(PeerError):
    """A frame that isn't one: too long, not JSON, not an object. The connection ends."""

    code = "bad_frame"


class BadMessage(PeerError):
    """A message whose fields don't fit its kind. It is answered with this error, the connection goes on."""

    code = "bad_message"


class UnknownMessage(PeerError):
    """A message of a kind that this version doesn't know. It is answered with this error, the connection goes on."""

    code = "unknown_message"


class BadValue(PeerError):
    """A value outside its limits: a priority, a policy, a size."""

    code = "bad_value"


class ProtocolMismatch(PeerError):
    """The two ends share no version of the protocol; says which versions each speaks."""

    code = "protocol_mismatch"
    status = 409


class NotAllowed(PeerError):
    """The peer may not do this: another user's session, an admin verb on a user socket, a spent token."""

    code = "not_allowed"
    status = 403


class OverLimit(PeerError):
    """What the user's limits don't allow: another session, a higher priority. Says which limit."""

    code = "over_limit"
    status = 403


class UnknownSession(PeerError):
    """No session of this id."""

    code = "unknown_session"
    status = 404


class UnknownDevice(PeerError):
    """No device of this id."""

    code = "unknown_device"
    status = 404


class NotPossible(PeerError):
    """The verb is known and allowed and can't be done now: evict on a device that moves nothing, yield without a turn."""

    code = "not_possible"
    status = 409


class BackendGone(SalusError):
    """Nobody answers at the backend's address; says which address, and how a backend is started."""

    code = "backend_gone"
    status = 503


class BadAddress(PeerError):
    """A socket path that can't be used: too long, unwritable, somebody else's, not a socket."""

    code = "bad_address"


class AddressInUse(PeerError):
    """Another backend serves this address; says its pid and version."""

    code = "address_in_use"
    status = 409


class DeviceError(SalusError):
    """The machine's: a device that failed or has too little."""

    code = "device_failed"
    status = 503


class RoomRefused(DeviceError, MemoryError):
    """What one session alone could never get; says who holds what. Also a `MemoryError` for guest code."""

    code = "room_refused"
    status = 507

"""The `iteration` lines of the log. Guests report seldom, so the ends in between are worked out from speeds."""

from __future__ import annotations

from collections.abc import Iterable

from .device import Device
from .guest import Guest
from .log import Log


def write_iterations(log: Log, devices: Iterable[Device], since: float, now: float) -> None:
    """Write the ends of all iterations up to `now`, in order of time. Called before anybody's speed changes.

    No line is earlier than `since`, up to which the log is written: what rounding would put before it comes right after.
    """
    ends: list[tuple[float, int, Guest]] = []
    for device in devices:
        for order, guest in enumerate(device.running.values()):
            while guest.logged < guest.job.iterations:
                number = guest.logged + 1
                at = now if number == guest.done else guest.time_of(number)
                if at > now or number > guest.target:
                    break
                ends.append((max(at, since), order, guest))
                guest.logged = number
    ends.sort(key=lambda end: end[:2])
    for at, _, guest in ends:
        log.write(
            at,
            "iteration",
            job=guest.id,
            device=guest.device,
            lane=guest.lane,
            persistent_bytes=guest.persistent_bytes,
            ephemeral_bytes=guest.ephemeral_bytes,
        )

"""Guests, servers and people that do everything at random at one backend that checks its books after each event."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jupyter_salus.errors import SalusError
from tests.daemon.speaking import Daemon, Talker

MIB = 1024**2
SESSIONS = [f"s{number}" for number in range(6)]


class Actor:
    """One session that plays by the rules most of the time."""

    def __init__(self, daemon: Daemon, session: str, chance: random.Random) -> None:
        self.daemon = daemon
        self.session = session
        self.chance = chance
        self.key: str | None = None
        self.ticket = 0
        self.epoch = 0
        self.talker: Talker | None = None

    def come(self) -> None:
        hello: dict[str, Any] = {"path": f"{self.session}.ipynb", "holding": self.chance.random() < 0.3}
        if self.key is not None:
            hello["key"] = self.key
        self.talker = self.daemon.guest(self.session, **hello)
        self.key = self.talker.heard[0]["key"]

    def step(self) -> None:
        if self.talker is None:
            self.come()
            return
        self.listen()
        match self.chance.randrange(10):
            case 0 | 1 | 2:
                self.ticket += 1
                self.talker.say({"kind": "turn_wanted", "ticket": self.ticket})
            case 3 | 4:
                more = self.chance.random() < 0.5
                self.ticket += more
                held = self.chance.randrange(2000) * MIB
                self.talker.say(
                    {
                        "kind": "turn_released",
                        "epoch": self.epoch,
                        "wants_more": more,
                        "ticket": self.ticket,
                        "resident_bytes": held,
                    }
                )
            case 5:
                self.talker.say({"kind": "turn_withdrawn", "ticket": self.ticket})
            case 6 | 7:
                held = self.chance.randrange(2000) * MIB
                peak = held + self.chance.randrange(1000) * MIB
                self.talker.say(
                    {
                        "kind": "progress",
                        "epoch": self.epoch,
                        "iterations": self.chance.randrange(5),
                        "busy_s": self.chance.random(),
                        "resident_bytes": held,
                        "peak_bytes": peak,
                    }
                )
            case 8:
                cell = self.chance.randrange(3)
                self.talker.say({"kind": self.chance.choice(["cell_started", "cell_finished"]), "cell": cell})
            case _:
                if self.chance.random() < 0.5:
                    self.talker.raw(b"\xff\xff\xff\xff")
                self.talker.close()
                self.talker = None

    def listen(self) -> None:
        """Take what has come, without waiting."""
        assert self.talker is not None
        self.talker.socket.setblocking(False)
        try:
            while self.talker._more(0.0001):
                pass
        except (TimeoutError, BlockingIOError):
            pass  # nothing more for now
        self.talker.socket.settimeout(60)
        for wire in self.talker.heard:
            if wire["kind"] == "turn_granted":
                self.epoch = max(self.epoch, wire["epoch"])


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_the_books_are_right_and_everybody_is_served_afterwards(daemon: Daemon, seed: int) -> None:
    chance = random.Random(seed)
    actors = [Actor(daemon, session, chance) for session in SESSIONS]
    with daemon.client(admin=True) as admin:
        for step in range(400):
            chance.choice(actors).step()
            if step % 10 == 0:
                verb = chance.choice(["priority", "pinned", "yield", "policy"])
                target = "host" if verb == "policy" else chance.choice(SESSIONS)
                value = {"priority": "high", "pinned": "true", "policy": chance.choice(["fifo", "fair", "srtf"])}.get(
                    verb
                )
                try:
                    admin.act(verb, target, value)
                except SalusError as error:
                    assert error.status < 500, error
        assert admin.ask("state")["backend"]["healthy"]
    for actor in actors:
        if actor.talker is not None:
            actor.talker.close()
    last = daemon.guest("last")
    last.say({"kind": "turn_wanted", "ticket": 1})
    last.hear("turn_granted", ticket=1)

"""Every command: its name, what it does, and the module that has it. The reference page is made from this table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """`module` has `configure(parser, name)` and `run(arguments)`, or `delegate`, a function of the rest of the line."""

    name: str
    summary: str
    module: str
    delegate: str | None = None


_ALL = (
    Command("backend", "serve a backend in the foreground", "jupyter_salus.backend.daemon.app", "main"),
    Command("status", "devices, lanes and sessions, with who waits for whom", "jupyter_salus.cli.status"),
    Command("top", "the same, live", "jupyter_salus.cli.top"),
    Command("run", "execute notebooks at the same time, taking turns", "jupyter_salus.cli.run"),
    Command("priority", "set a session's priority: high, normal or low", "jupyter_salus.cli.verbs"),
    Command("yield", "have a session pass its turn on at its next boundary", "jupyter_salus.cli.verbs"),
    Command("evict", "move an idle session's memory to the host", "jupyter_salus.cli.verbs"),
    Command("restore", "bring an evicted session's memory back", "jupyter_salus.cli.verbs"),
    Command("pin", "have a session evicted last, or undo that", "jupyter_salus.cli.verbs"),
    Command("policy", "set the policy of a device", "jupyter_salus.cli.verbs"),
    Command("drain", "give no new turns on a device, for maintenance, or undo that", "jupyter_salus.cli.verbs"),
    Command("journal", "what happened, in words", "jupyter_salus.cli.journal"),
    Command("doctor", "what will and won't work on this machine, and why", "jupyter_salus.cli.doctor"),
    Command("simulate", "run a trace of jobs through the scheduler", "jupyter_salus.simulate.command", "main"),
)

COMMANDS: dict[str, Command] = {command.name: command for command in _ALL}

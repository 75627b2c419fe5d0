"""`jupyter salus backend`: options, log, signals. What it runs is `backend`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from jupyter_core.application import JupyterApp, base_aliases, base_flags
from traitlets import Bool, CaselessStrEnum, Float, Integer, TraitError, Unicode, default
from traitlets.config.loader import ArgumentError

from ...errors import AddressInUse, BadValue, SalusError
from ...protocol.address import Address, find
from ...protocol.directory import state_directory
from ...protocol.launch import READY, TAKEN
from ...protocol.version import VERSION
from ..devices.choice import KINDS, Choice, choose
from ..devices.size import parse_bytes
from .backend import Backend
from .clock import SystemClock
from .unit import unit
from .verbs import POLICIES

DONE, FAILED, BAD_USAGE = 0, 1, 2
#: Set to check the core's invariants after each event; a backend whose books are wrong ends with this status.
DEBUG_VARIABLE = "JUPYTER_SALUS_DEBUG"
BROKEN = 70


class BackendApp(JupyterApp):
    """The backend that knows every session and device of one address, and decides who runs."""

    name = "jupyter-salus-backend"
    version = VERSION
    description = """The backend of jupyter_salus in the foreground: knows every session and device, decides who runs.

    Without options it governs what is there and listens where servers of this user look for it. It ends on SIGTERM and
    Ctrl-C; kernels go on without it."""
    examples = """
    jupyter salus backend
    jupyter salus backend --device host --capacity 16GiB --policy fifo
    jupyter salus backend --print-unit > /etc/systemd/system/jupyter-salus.service
    """
    aliases = {  # noqa: RUF012  (traitlets declares them as instance variables)
        "log-level": base_aliases["log-level"],
        "config": base_aliases["config"],
        "socket": "BackendApp.socket",
        "device": "BackendApp.device",
        "capacity": "BackendApp.capacity",
        "policy": "BackendApp.policy",
        "exit-when-idle": "BackendApp.exit_when_idle",
        "ready-fd": "BackendApp.ready_fd",
    }
    flags = {  # noqa: RUF012
        "debug": base_flags["debug"],
        "print-unit": ({"BackendApp": {"print_unit": True}}, "Print a systemd unit for these options and end."),
    }

    socket = Unicode("", help="The socket to listen at; by default where this user's servers look for it.").tag(
        config=True
    )
    device = CaselessStrEnum(
        KINDS, "auto", help="What to govern: `cuda`, `host` (RAM and turns), or `auto`, by what is there."
    ).tag(config=True)
    capacity = Unicode(
        "", help="What sessions may have together, like 16GiB; by default the device's memory, less what others use."
    ).tag(config=True)
    policy = CaselessStrEnum(POLICIES, "fair", help="Who comes first: fair, fifo, srtf, pack or priority.").tag(
        config=True
    )
    exit_when_idle = Float(0.0, min=0.0, help="End after so many seconds without any session; 0: never.").tag(
        config=True
    )
    print_unit = Bool(False, help="Print a systemd unit for these options and end.").tag(config=True)
    ready_fd = Integer(-1, help="A descriptor to write a line to and close, once the backend serves.").tag(config=True)

    @default("log_format")
    def _log_format(self) -> str:
        return "%(asctime)s %(levelname)s %(message)s"

    #: The process's exit status, once `start` has returned.
    status = DONE

    def migrate_config(self) -> None:
        """Nothing of older Jupyters concerns a backend, and it writes into no home without need."""

    def start(self) -> None:
        """Run until told to end. Raises `SalusError` if the backend can't be: bad values, an address that is taken."""
        super().start()
        if self.print_unit:
            print(unit(self._options()), end="")
            return
        choice = choose(self.device, parse_bytes(self.capacity) if self.capacity else None)
        raise_descriptor_limit()
        self.status = asyncio.run(self._run(choice))

    async def _run(self, choice: Choice) -> int:
        backend = Backend(
            self._address(),
            choice.devices[0],
            Path(state_directory(os.environ)),
            SystemClock(),
            self.log,
            policy=self.policy,
            exit_when_idle_s=self.exit_when_idle,
            debug=os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"),
        )
        self.log.info("%s. Capacity: %s", choice.why, self.capacity or "the machine's")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, backend.stop)
        await backend.serve(self._ready)
        self.log.info("Ended")
        return BROKEN if backend.loop.broken else DONE

    def _address(self) -> Address:
        found = find(os.environ, self.socket or None)
        own = find({name: value for name, value in os.environ.items() if name != "JUPYTER_SALUS_SOCKET"})
        # The one that a Manager starts is told where to listen, and makes the directory there as the own one is made.
        return own if own.path == found.path else found

    def _ready(self) -> None:
        # What was loaded until here stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        self.tell(READY)

    def tell(self, word: str) -> None:
        """Say a word to who started this process, if it listens; the last one."""
        if self.ready_fd >= 0:
            descriptor, self.ready_fd = self.ready_fd, -1
            with os.fdopen(descriptor, "w") as ready:
                ready.write(f"{word}\n")

    def _options(self) -> list[str]:
        chosen = {"device": self.device, "capacity": self.capacity, "policy": self.policy}
        return [f"--{name}={value}" for name, value in chosen.items() if value]


def raise_descriptor_limit() -> None:
    """Each guest takes two descriptors (socket and pidfd): take what the system lets a process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        logging.getLogger(__name__).debug("the descriptor limit stays as it is")


def main(argv: list[str] | None = None) -> int:
    """Run the app; the exit status: 0 ended when told to, 1 couldn't serve, 2 wrong options."""
    app = BackendApp()
    arguments = sys.argv[1:] if argv is None else argv
    unknown = _unknown(app, arguments)
    if unknown:
        print(f"cannot use the option {unknown!r}: `--help` lists those that are there", file=sys.stderr)
        return BAD_USAGE
    try:
        app.initialize(arguments)
    except (TraitError, ArgumentError) as error:
        print(error, file=sys.stderr)
        return BAD_USAGE
    except SystemExit as ended:
        # traitlets logs a wrong option and ends with 1; `--help` and `--version` end with 0.
        return BAD_USAGE if ended.code else DONE
    try:
        app.start()
    except BadValue as error:
        print(error.message, file=sys.stderr)
        return BAD_USAGE
    except SalusError as error:
        if isinstance(error, AddressInUse):
            app.tell(TAKEN)
        print(error.message, file=sys.stderr)
        return FAILED
    return app.status


def _unknown(app: BackendApp, arguments: list[str]) -> str | None:
    """The first argument that nothing stands for: traitlets would warn and go on without it."""
    known = {
        *app.aliases,
        *app.flags,
        "help",
        "help-all",
        "version",
        "generate-config",
        "y",
        "answer-yes",
        "show-config",
    }
    takes_value = False
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        if argument.startswith("-"):
            # `--BackendApp.socket=…` sets any trait; its name and value traitlets checks.
            if name not in known and "." not in name and argument not in ("-h", "-y"):
                return argument
            takes_value = not equals and name in app.aliases
        elif takes_value:
            takes_value = False
        else:
            return argument
    return None

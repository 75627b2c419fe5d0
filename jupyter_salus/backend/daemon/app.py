"""`jupyter salus backend`: options, log, signals. What it runs is `backend`."""

from __future__ import annotations

import asyncio
import gc
import grp
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from jupyter_core.application import JupyterApp, base_aliases, base_flags
from traitlets import Bool, CaselessStrEnum, Float, Integer, TraitError, Unicode, default
from traitlets.config.loader import ArgumentError

from ...errors import AddressInUse, BadAddress, BadValue, SalusError
from ...protocol.address import SYSTEM_DIRECTORY, Address, find
from ...protocol.directory import state_directory
from ...protocol.launch import READY, TAKEN
from ...protocol.promptness import be_prompt
from ...protocol.version import VERSION
from ..devices.choice import KINDS, Choice, choose
from ..devices.size import parse_bytes
from .backend import Backend
from .clock import SystemClock
from .listening import inherited_sockets
from .powers import powers
from .unit import LIMITS, printed, units, write
from .users import Sharing
from .verbs import POLICIES

DONE, FAILED, BAD_USAGE = 0, 1, 2
COMMAND = "jupyter salus backend"
#: Set to check the core's invariants after each event; a backend whose books are wrong ends with this status.
DEBUG_VARIABLE = "JUPYTER_SALUS_DEBUG"
BROKEN = 70
#: How long the thread that looks at processes may keep the loop from running, in seconds.
SWITCH_S = 0.0005


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
    jupyter salus backend --print-unit --device=cuda
    jupyter salus backend --print-unit --unit-root=/ --unit-user=salus
    """
    aliases = {  # noqa: RUF012  (traitlets declares them as instance variables)
        "log-level": base_aliases["log-level"],
        "config": base_aliases["config"],
        "socket": "BackendApp.socket",
        "device": "BackendApp.device",
        "capacity": "BackendApp.capacity",
        "reserve": "BackendApp.reserve",
        "host-memory": "BackendApp.host_memory",
        "policy": "BackendApp.policy",
        "exit-when-idle": "BackendApp.exit_when_idle",
        "ready-fd": "BackendApp.ready_fd",
        "limits": "BackendApp.limits",
        "admin-group": "BackendApp.admin_group",
        "unit-root": "BackendApp.unit_root",
        "unit-user": "BackendApp.unit_user",
    }
    flags = {  # noqa: RUF012
        "debug": base_flags["debug"],
        "print-unit": (
            {"BackendApp": {"print_unit": True}},
            "Print the service, sockets and tmpfiles entries of a backend for all users, with these options, and end.",
        ),
        "shared": (
            {"BackendApp": {"shared": True}},
            "Serve all local users, each with their own sessions, as a backend in /run/jupyter-salus does.",
        ),
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
    reserve = Unicode(
        "", help="Of a GPU's capacity: kept back for what nobody asks for; by default 1GiB, on small ones an eighth."
    ).tag(config=True)
    host_memory = Unicode(
        "", help="What may be moved out into host memory together; by default, and at most, half of the machine's."
    ).tag(config=True)
    policy = CaselessStrEnum(POLICIES, "fair", help="Who comes first: fair, fifo, srtf, pack or priority.").tag(
        config=True
    )
    exit_when_idle = Float(0.0, min=0.0, help="End after so many seconds without any session; 0: never.").tag(
        config=True
    )
    shared = Bool(
        False,
        help="Serve all local users, each with their own sessions. One that listens in /run/jupyter-salus does it anyhow.",
    ).tag(config=True)
    limits = Unicode(
        "", help="A TOML file of users' and groups' shares and limits; read again when it changes, and may come later."
    ).tag(config=True)
    admin_group = Unicode(
        "", help="A Unix group whose members may use the admin socket; by default the backend's own user alone."
    ).tag(config=True)
    tell_user_names = Bool(
        False,
        help="Whether users of a shared backend see whose another user's session is; its notebook they never see.",
    ).tag(config=True)
    unmanaged_use = CaselessStrEnum(
        ("report", "alert"),
        "report",
        help="What to do about processes that use a device without a session: list them, or also warn in the log.",
    ).tag(config=True)
    print_unit = Bool(
        False, help="Print the service, sockets and tmpfiles entries of a backend for all users, and end."
    ).tag(config=True)
    unit_root = Unicode(
        "", help="With `--print-unit`: write the files below this directory (`/` for this machine) instead."
    ).tag(config=True)
    unit_user = Unicode("root", help="With `--print-unit`: who the backend runs as.").tag(config=True)
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
            self._print_unit()
            return
        choice = choose(
            self.device,
            parse_bytes(self.capacity) if self.capacity else None,
            parse_bytes(self.reserve) if self.reserve else None,
        )
        raise_descriptor_limit()
        sys.setswitchinterval(SWITCH_S)
        be_prompt()
        self.status = asyncio.run(self._run(choice))

    async def _run(self, choice: Choice) -> int:
        address = self._address()
        backend = Backend(
            address,
            choice.devices,
            Path(state_directory(os.environ)),
            SystemClock(),
            self.log,
            policy=self.policy,
            exit_when_idle_s=self.exit_when_idle,
            host_memory_bytes=parse_bytes(self.host_memory) if self.host_memory else None,
            debug=os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"),
            sharing=self._sharing(address),
        )
        self.log.info("Runs as %s", powers().text)
        self.log.info("%s. Capacity: %s", choice.why, self.capacity or "the machine's")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, backend.stop)
        await backend.serve(self._ready)
        self.log.info("Ended")
        return BROKEN if backend.loop.broken else DONE

    def _sharing(self, address: Address) -> Sharing:
        """How several users are served. Raises `BadValue` for a group that isn't there."""
        inherited = tuple(inherited_sockets(os.environ))
        shared = self.shared or address.kind == "system"
        try:
            gid = grp.getgrnam(self.admin_group).gr_gid if self.admin_group else None
        except KeyError as error:
            raise BadValue(f"cannot find the group {self.admin_group!r} for the admin socket") from error
        return Sharing(
            everybody=shared,
            admin_gid=gid,
            names_told=self.tell_user_names or not shared,
            inherited=inherited,
            alert=self.unmanaged_use == "alert",
            limits=Path(self.limits).absolute() if self.limits else None,
        )

    def _print_unit(self) -> None:
        """Raises `BadAddress` if the files can't be written."""
        files = units(self._options(), self.unit_user, self.admin_group)
        if not self.unit_root:
            print(printed(files), end="")
            return
        try:
            for path in write(files, Path(self.unit_root)):
                print(path)
        except OSError as error:
            raise BadAddress(f"cannot write {error.filename}: {error.strerror}") from error

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
        chosen = {"socket": f"{SYSTEM_DIRECTORY}/backend.sock", "device": self.device, "capacity": self.capacity}
        chosen |= {"reserve": self.reserve, "host-memory": self.host_memory}
        chosen |= {"policy": self.policy, "limits": self.limits or LIMITS, "admin-group": self.admin_group}
        if self.tell_user_names:
            chosen["BackendApp.tell_user_names"] = "True"
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
    wrong = _wrong(app, arguments)
    if wrong is not None:
        return _bad_usage(wrong)
    app.log.addFilter(_is_no_complaint)
    try:
        app.initialize(arguments)
    except (TraitError, ArgumentError) as error:
        return _bad_usage(str(error))
    except SystemExit as ended:
        # traitlets ends so for a value that it can't take, too; `--help` and `--version` end with 0.
        return _bad_usage(str(ended.__context__ or "these options can't be taken")) if ended.code else DONE
    finally:
        app.log.removeFilter(_is_no_complaint)
    try:
        app.start()
    except (BadAddress, BadValue) as error:
        return _bad_usage(error.message)
    except SalusError as error:
        if isinstance(error, AddressInUse):
            app.tell(TAKEN)
        print(f"{COMMAND}: {error.message}", file=sys.stderr)
        return FAILED
    return app.status


def _bad_usage(message: str) -> int:
    """In the form that every command of `jupyter salus` has for it."""
    print(f"{COMMAND}: {message} (`{COMMAND} --help` lists its options)", file=sys.stderr)
    return BAD_USAGE


def _is_no_complaint(record: logging.LogRecord) -> bool:
    """Keeps traitlets from logging a wrong value, which is told in the form of all commands."""
    return not record.getMessage().startswith("Bad config encountered")


def _wrong(app: BackendApp, arguments: list[str]) -> str | None:
    """What nothing stands for, or lacks its value: traitlets would warn and go on, or tell it in a form of its own."""
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
    takes_value = ""
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        if argument.startswith("-"):
            # `--BackendApp.socket=…` sets any trait; its name and value traitlets checks.
            if name not in known and "." not in name and argument not in ("-h", "-y"):
                return f"unrecognized arguments: {argument}"
            if takes_value:
                break
            takes_value = argument if not equals and name in app.aliases else ""
        elif takes_value:
            takes_value = ""
        else:
            return f"unrecognized arguments: {argument}"
    return f"argument {takes_value}: expected one argument" if takes_value else None

"""Starting a user's own backend as a process that outlives whoever started it. For managers and the command line."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import time
from typing import Dict, Mapping, Optional, Sequence, Tuple

from ..errors import BackendGone, NotPossible, SalusError
from .address import Address, check_reachable
from .client import Client, gone
from .directory import state_directory
from .messages import Welcome
from .version import VERSION, release

#: Seconds without a session after which a backend that a Manager started ends.
IDLE_EXIT_S = 60
LOG_NAME = "backend.log"
#: What a backend says to who started it: it serves, or another one has its address.
READY, TAKEN = "ready", "taken"
#: What a kernel's environment carries and its backend must not.
_NOT_INHERITED = (
    "JUPYTER_SALUS_SESSION",
    "JUPYTER_SALUS_TOKEN",
    "JUPYTER_SALUS_INCARNATION",
    "JUPYTER_SALUS_NAME",
    "JUPYTER_SALUS_PATH",
    "JUPYTER_SALUS_KERNEL_ID",
    "LD_PRELOAD",
)


def answering(address: Address, timeout: float = 10.0) -> Optional[Welcome]:
    """The welcome of the backend at this address, or None where nobody answers. Raises `BadAddress`."""
    check_reachable(address)
    try:
        with Client(address.path, timeout=timeout) as client:
            return client.welcome
    except BackendGone:
        return None


def ensure_backend(
    address: Address,
    log: Optional[logging.Logger] = None,
    options: Sequence[str] = (),
    environ: Optional[Mapping[str, str]] = None,
    timeout: float = 60.0,
) -> Welcome:
    """Wait until a backend answers at `address`, and start one if it is the user's own and nobody does.

    Safe when two do it at once: the second backend finds the first and ends. A system or configured address is never
    served by a backend of ours: raises `BackendGone` if nobody answers there, and if the one started here doesn't come
    up within `timeout` seconds, with the end of its log. An older backend without any session is asked to go first.
    """
    log = log or logging.getLogger(__name__)
    welcome = answering(address)
    if welcome is not None and not (address.kind == "own" and _retired(address, welcome, log)):
        return welcome
    if address.kind != "own":
        raise gone(address.path, f"nobody listens there, and a {address.kind} address is not ours to serve")
    deadline = time.monotonic() + timeout
    word, log_path = start(address, options, dict(os.environ if environ is None else environ), timeout)
    while True:
        welcome = answering(address)
        if welcome is not None:
            log.info("The backend at %s runs with pid %d; its log is %s", address.path, welcome.pid, log_path)
            return welcome
        if word != TAKEN or time.monotonic() >= deadline:
            why = f"the one started here didn't come up: {_end_of(log_path)}"
            raise BackendGone(f"cannot reach the backend at {address.path}: {why}", {"address": address.path})
        # Another one has the address, and has yet to listen.
        time.sleep(0.05)


def start(address: Address, options: Sequence[str], environ: Mapping[str, str], timeout: float) -> Tuple[str, str]:
    """Start a backend in a process session of its own, and wait until it serves, ended or took too long.

    Returns what it said over a pipe (`READY`, `TAKEN`, or nothing if it ended otherwise) and its log's path.
    """
    log_path = _log_path(environ)
    passed: Dict[str, str] = {name: value for name, value in environ.items() if name not in _NOT_INHERITED}
    reader, writer = os.pipe()
    try:
        command = [sys.executable, "-m", "jupyter_salus.backend", "--detach", f"--ready-fd={writer}"]
        command += [f"--socket={address.path}", f"--exit-when-idle={IDLE_EXIT_S}", *options]
        with open(log_path, "ab") as output:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,
                cwd="/",
                env=passed,
                check=False,
            )
        os.close(writer)
        writer = -1
        ready, _, _ = select.select([reader], [], [], timeout)
        return (os.read(reader, 64).decode("ascii", "replace").strip() if ready else ""), log_path
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def _log_path(environ: Mapping[str, str]) -> str:
    """The log of backends in the state directory; where that can't be written, nowhere: the backend does without, too."""
    directory = state_directory(environ)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with open(os.path.join(directory, LOG_NAME), "ab") as log:
            return str(log.name)
    except OSError:
        return os.devnull


def _retired(address: Address, welcome: Welcome, log: logging.Logger) -> bool:
    """Whether an older backend without any session went away for us. One with sessions stays, and the log says so."""
    theirs, ours = release(welcome.version), release(VERSION)
    if not theirs or theirs >= ours:
        return False
    try:
        with Client(address.admin_path) as admin:
            admin.act("retire", "backend")
    except NotPossible:
        log.warning(
            "The backend at %s is version %s (pid %d), this is %s; it stays while it has sessions",
            address.path,
            welcome.version,
            welcome.pid,
            VERSION,
        )
        return False
    except SalusError as error:
        log.warning("The backend at %s (version %s) didn't make way: %s", address.path, welcome.version, error)
        return False
    deadline = time.monotonic() + 10
    while answering(address) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return True


def _end_of(log_path: str) -> str:
    try:
        with open(log_path, "rb") as log:
            log.seek(max(0, os.path.getsize(log_path) - 600))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
    except OSError as error:
        return f"its log {log_path} can't be read ({error.strerror})"
    return f"{lines[-1] if lines else 'it said nothing'} (log: {log_path})"

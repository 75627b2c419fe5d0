"""`jupyter salus doctor`: what will and won't work on this machine, and why. The first step of every bug report.

It looks and starts nothing. Each finding is `ok`, `note` (something is missing that one can do without) or `problem`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ..errors import BackendGone, SalusError
from ..protocol.address import Address, check_reachable, find
from ..protocol.client import Client
from ..protocol.directory import state_directory
from ..protocol.version import VERSION
from .findings import Finding, machine
from .units import duration, size

_PACKAGES = ("jupyter_server", "jupyter_client", "jupyterlab", "ipykernel", "nbclient", "traitlets", "tornado", "pyzmq")
_MARKS = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Called by the command line."""
    parser.add_argument("--socket", metavar="PATH", help="the backend's socket (default: where your notebooks look)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Called by the command line. 1 if there is a problem."""
    findings = list(examine(arguments.socket))
    if arguments.json:
        print(json.dumps({"version": VERSION, "findings": [asdict(one) for one in findings]}))
    else:
        for one in findings:
            print(f"{_MARKS[one.level]} {one.about}: {one.text}")
    return 1 if any(one.level == "problem" for one in findings) else 0


def examine(socket: str | None) -> Iterator[Finding]:
    """Everything that `doctor` looks at, in the order in which it says it."""
    yield _platform()
    yield _packages()
    yield _server_extension()
    yield _labextension()
    yield from _backend(socket)
    yield _state_directory()
    yield from machine()
    yield from _surroundings(socket)
    yield _manager_class()


def _platform() -> Finding:
    text = f"jupyter_salus {VERSION}, Python {platform.python_version()} at {sys.executable}, {platform.platform()}"
    if platform.system() == "Linux":
        return Finding("platform", "ok", text)
    if platform.system() == "Darwin":
        return Finding("platform", "note", f"{text}; on macOS the host device works, the guard doesn't")
    return Finding("platform", "problem", f"{text}; here kernels start as plain ones and nothing takes turns")


def _packages() -> Finding:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding("packages", "problem", f"cannot find {', '.join(missing)}; there is {', '.join(found)}")
    return Finding("packages", "ok", ", ".join(found))


def _server_extension() -> Finding:
    from jupyter_core.paths import jupyter_config_path

    for place in jupyter_config_path():
        file = Path(place) / "jupyter_server_config.d" / "jupyter_salus.json"
        try:
            enabled = json.loads(file.read_text("utf-8"))["ServerApp"]["jpserver_extensions"]["jupyter_salus"]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            return Finding("server extension", "problem", f"cannot read {file}: {error}")
        if enabled:
            return Finding("server extension", "ok", f"enabled by {file}")
        return Finding("server extension", "problem", f"switched off by {file}: no sidebar, no REST interface")
    return Finding(
        "server extension", "problem", "not enabled: `jupyter server extension enable jupyter_salus` does it"
    )


def _labextension() -> Finding:
    from jupyter_core.paths import jupyter_path

    for place in jupyter_path("labextensions"):
        file = Path(place) / "jupyter-salus" / "package.json"
        if file.exists():
            off = _disabled_by()
            if off is not None:
                return Finding("sidebar", "note", f"installed in {file.parent}, and switched off by {off}")
            return Finding("sidebar", "ok", f"installed in {file.parent}")
    return Finding(
        "sidebar", "note", "not installed (built without Node.js?): notebooks take turns, but nothing shows it"
    )


def _disabled_by() -> Path | None:
    """The file in which JupyterLab reads that our extension, or a plugin of it, is disabled."""
    from jupyter_core.paths import jupyter_config_path

    for place in jupyter_config_path():
        file = Path(place) / "labconfig" / "page_config.json"
        try:
            disabled = json.loads(file.read_text("utf-8")).get("disabledExtensions", {})
        except (OSError, ValueError, AttributeError):
            continue  # JupyterLab itself says what is wrong with it
        off = [name for name, value in disabled.items() if value] if isinstance(disabled, dict) else list(disabled)
        if any(str(name).partition(":")[0] == "jupyter-salus" for name in off):
            return file
    return None


def _backend(socket: str | None) -> Iterator[Finding]:
    try:
        address = find(os.environ, socket)
        check_reachable(address)
    except SalusError as error:
        yield Finding("address", "problem", error.message)
        return
    yield Finding("address", "ok", f"{address.path} ({address.kind})")
    yield from _answering(address)


def _answering(address: Address) -> Iterator[Finding]:
    try:
        with Client(address.path) as client:
            state = client.ask("state")
    except SalusError as error:
        # Nobody listens: anything else is a backend that doesn't answer as it should.
        nobody = isinstance(error, BackendGone) and isinstance(
            error.__cause__, (FileNotFoundError, ConnectionRefusedError)
        )
        if address.kind == "own" and nobody:
            yield Finding("backend", "ok", "none runs now; a server with jupyter_salus.Manager starts one")
        else:
            yield Finding("backend", "problem", f"{error.message}; kernels start as plain ones until it is there")
        return
    backend = state["backend"]
    since = duration(max(0.0, state["as_of"] - backend["started_at"]))
    level, extra = ("ok", "") if backend["version"] == VERSION else ("note", f"; this command is {VERSION}")
    yield Finding("backend", level, f"version {backend['version']}, pid {backend['pid']}, up {since}{extra}")
    for row in state["devices"]:
        amount = f"{size(row['free_bytes'])} free of {size(row['capacity_bytes'])}"
        text = f"{row['name']}, {amount}, {size(row['foreign_bytes'])} used by others, policy {row['policy']}"
        yield Finding(f"device {row['id']}", "ok", text)


def _state_directory() -> Finding:
    folder = Path(state_directory(os.environ))
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("state directory", "problem", f"cannot write to {nearest}: no log, journal or profiles")
    return Finding("state directory", "ok", f"{folder}{'' if folder.exists() else ' (made when it is needed)'}")


def _surroundings(socket: str | None) -> Iterator[Finding]:
    """What keeps a shared backend and kernels from one another: rights, pid namespaces, SELinux, mounts."""
    from ..hub.surroundings import surroundings

    try:
        address = find(os.environ, socket)
    except SalusError:
        return  # told with the address already
    package = Path(__file__).parent.parent
    guest = package / "guest" / "__init__.py"
    loaded = [*sorted((package / "native").glob("*guard*.so")), guest]
    for about, level, text in surroundings(address, loaded):
        # A file of that name says nothing to a person.
        yield Finding("loading the guest" if about == f"loading {guest.name}" else about, level, text)


def _manager_class() -> Finding:
    """Whether a server started without options would use our Manager."""
    from jupyter_core.paths import jupyter_config_path

    for place in jupyter_config_path():
        file = Path(place) / "jupyter_server_config.json"
        try:
            chosen = json.loads(file.read_text("utf-8")).get("ServerApp", {}).get("kernel_manager_class")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError) as error:
            return Finding("kernel manager", "problem", f"cannot read {file}: {error}")
        if chosen == "jupyter_salus.Manager":
            return Finding("kernel manager", "ok", f"jupyter_salus.Manager, set in {file}")
        if chosen and _is_ours(str(chosen)):
            return Finding("kernel manager", "ok", f"{chosen}, which is built on ours, set in {file}")
        if chosen:
            text = (
                f"{file} sets {chosen}: its kernels don't take turns, unless their kernelspec names salus-provisioner"
            )
            return Finding("kernel manager", "note", text)
    flag = "--ServerApp.kernel_manager_class=jupyter_salus.Manager"
    return Finding("kernel manager", "note", f"not set in a JSON configuration: start the server with {flag}")


def _is_ours(dotted: str) -> bool:
    """Whether a class by this name has our mix-in. One that can't be imported isn't, as far as a server is concerned."""
    from ..manager import SalusManagerMixin

    module, _, name = dotted.rpartition(".")
    try:
        chosen = getattr(importlib.import_module(module), name)
    except Exception:  # whatever somebody else's module raises while it is imported
        return False
    return isinstance(chosen, type) and issubclass(chosen, SalusManagerMixin)

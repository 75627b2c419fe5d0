"""The reference pages, made from the code: what stands in no table of the code is in no page, and the other way round."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jupyter_salus import errors
from jupyter_salus.backend.daemon.app import BackendApp
from jupyter_salus.cli.limits import LIMITS, PARTS
from jupyter_salus.cli.table import COMMANDS
from jupyter_salus.hub.service import HubService
from jupyter_salus.manager import Manager, NotebookKernelManager, SalusKernelManager
from jupyter_salus.protocol import codec, messages
from jupyter_salus.server import SalusExtension

ROOT = Path(__file__).parent.parent


def commands() -> str:
    """Every command with its options, as `--help` prints them."""
    parts = [
        "# Command line",
        "",
        "Exit codes: 0 done, 1 failed, 2 bad usage. With `--json` the answer is one JSON object.",
    ]
    for command in COMMANDS.values():
        parts += [
            "",
            f"## jupyter salus {command.name}",
            "",
            command.summary[0].upper() + command.summary[1:] + ".",
            "",
        ]
        if command.delegate is None:
            parser = argparse.ArgumentParser(
                prog=f"jupyter salus {command.name}", formatter_class=_wide, add_help=False
            )
            importlib.import_module(command.module).configure(parser, command.name)
            parts += ["```text", parser.format_help().rstrip(), "```"]
        elif command.name == "backend":
            parts += ["Its options are the settings of `BackendApp`, see [](settings.md)."]
        else:
            parser = importlib.import_module(command.module)._parser()
            parser.formatter_class = _wide
            parts += ["```text", parser.format_help().rstrip(), "```"]
    return _page(parts)


def settings() -> str:
    """Every trait that a configuration file may set."""
    parts = ["# Settings", "", "Traits, for the command line (`--Class.trait=value`) and configuration files."]
    for cls in (Manager, SalusKernelManager, NotebookKernelManager, SalusExtension, BackendApp, HubService):
        rows = list(_traits(cls))
        if not rows:
            continue
        parts += [
            "",
            f"## {cls.__name__}",
            "",
            _first(cls),
            "",
            "| trait | default | what for |",
            "| --- | --- | --- |",
        ]
        parts += [f"| `{name}` | `{default!r}` | {text} |" for name, default, text in rows]
    parts += ["", "## Environment", "", "| variable | what for |", "| --- | --- |"]
    parts += [f"| `{name}` | {text} |" for name, text in ENVIRONMENT.items()]
    return _page(parts)


ENVIRONMENT = {
    "JUPYTER_SALUS_SOCKET": "The backend's socket. A backend at such an address is waited for, never started.",
    "JUPYTER_SALUS_RUN_DIR": "Instead of `/tmp`: where the directory of the user's own backend lies.",
    "JUPYTER_SALUS_STATE_DIR": "Logs, journal and learned profiles; else `$XDG_STATE_HOME/jupyter-salus` or "
    "`~/.local/state/jupyter-salus`.",
    "JUPYTER_SALUS_GUARD": "`off`: no kernel is preloaded with the guard; a path: another build of it.",
    "JUPYTER_SALUS_PATIENCE_S": "In a kernel: how long a backend may be silent before kernels go on without it; 10 seconds.",
    "JUPYTER_SALUS_DEBUG": "Set to 1: the backend checks its books after each event, and ends if they are wrong.",
    "JUPYTER_DEFAULT_PROVISIONER_NAME": "Set to `salus-provisioner`: kernels of nbconvert, papermill and the like are "
    "sessions, too.",
}


#: Modules whose `__all__` people may use in their own code.
PUBLIC = {
    "jupyter_salus": "In a notebook or script, and in a server's configuration.",
    "jupyter_salus.manager": "For servers with a kernel manager of their own, and for programs that start kernels.",
    "jupyter_salus.hub": "In a JupyterHub's configuration.",
}


def python() -> str:
    """Every name that may be imported, with what its docstring says."""
    parts = ["# Python", "", "What isn't here is free to change between two versions."]
    for module, where in PUBLIC.items():
        parts += ["", f"## {module}", "", where]
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            if name.startswith("__"):
                continue
            thing = getattr(loaded, name)
            if isinstance(thing, (str, list, dict, tuple)):
                parts += ["", f"### {name}", "", f"```python\n{name} = {thing!r}\n```"]
                continue
            head = f"{name}{inspect.signature(thing)}" if inspect.isfunction(thing) else f"class {name}"
            text = inspect.cleandoc(thing.__doc__ or "")
            if not text:
                raise ValueError(f"{module}.{name} has no docstring")
            parts += ["", f"### {name}", "", f"```python\n{head}\n```", "", text]
    return _page(parts)


def error_codes() -> str:
    """Every error with its code and status."""
    parts = [
        "# Errors",
        "",
        "REST answers `{code, message, detail}` with the status; the command line prints the message. Codes never change.",
        "",
        "| code | HTTP status | what it says |",
        "| --- | --- | --- |",
    ]
    for cls in _tree(errors.SalusError):
        if "code" in vars(cls):
            parts.append(f"| `{cls.code}` | {cls.status} | {_first(cls)} |")
    return _page(parts)


def wire() -> str:
    """Every message between backend and peers."""
    first, last = codec.PROTOCOL
    parts = [
        "# Wire",
        "",
        "Frames on a Unix socket: four bytes of length, big endian, then a JSON object with a `kind`. This version speaks "
        f"the protocols {first} to {last}; a hello carries the range, and the highest shared one is spoken. Unknown fields "
        "are ignored, unknown messages answered with `failed`.",
    ]
    assert messages.__doc__
    for kind, cls in sorted(codec.kinds().items()):
        parts += ["", f"## {kind}", "", inspect.cleandoc(cls.__doc__ or "")]
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        parts += ["", "| field | type | |", "| --- | --- | --- |"]
        for one in fields:
            must = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
            parts.append(f"| `{one.name}` | `{_type_text(one.type)}` | {'required' if must else ''} |")
    return _page(parts)


def rest() -> str:
    """Every address of the REST interface, from the OpenAPI file that is shipped."""
    spec = json.loads((ROOT / "jupyter_salus/server/openapi.json").read_text("utf-8"))
    parts = [
        "# REST",
        "",
        "Below the Jupyter server's base URL, at `salus/api`, with its authentication. The same as OpenAPI is in "
        "`jupyter_salus/server/openapi.json`.",
    ]
    for path, verbs in spec["paths"].items():
        for verb, one in verbs.items():
            if verb not in ("get", "post", "patch", "put", "delete"):
                continue
            parts += ["", f"## {verb.upper()} {path}", "", one.get("summary", "")]
            if one.get("description"):
                parts += ["", one["description"]]
            parts += ["", "| status | |", "| --- | --- |"]
            for status, answer in one.get("responses", {}).items():
                parts.append(f"| {status} | {answer.get('description', _last(answer.get('$ref', '')))} |")
    return _page(parts)


def events() -> str:
    """The Jupyter event of a change."""
    import yaml

    schema = yaml.safe_load((ROOT / "jupyter_salus/server/state_v1.yaml").read_text("utf-8"))
    parts = [
        "# Jupyter event",
        "",
        f"`{schema['$id']}`",
        "",
        schema["description"].strip(),
        "",
        "| field | |",
        "| --- | --- |",
    ]
    for name, one in schema["properties"].items():
        parts.append(f"| `{name}` | {' '.join(one.get('description', one.get('title', '')).split())} |")
    return _page(parts)


def metrics() -> str:
    """The gauges that the Jupyter server shows at `/metrics`."""
    import ast

    tree = ast.parse((ROOT / "jupyter_salus/server/metrics.py").read_text("utf-8"))
    parts = ["# Metrics", "", "On the Jupyter server's `/metrics`, for Prometheus.", "", "| gauge | |", "| --- | --- |"]
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if len(texts) == 2 and texts[0].startswith("salus_"):
                found[texts[0]] = texts[1]
    parts += [f"| `{name}` | {text} |" for name, text in sorted(found.items())]
    return _page(parts)


def limits() -> str:
    """What limits the use of a GPU, and what is done then."""
    parts = [
        "# What works with which GPU",
        "",
        "`jupyter salus doctor` says which of these it finds on a machine, a session's row what its program does by itself. "
        "*Gate*: launches wait for a turn. *Blocks*: memory is granted before it is mapped. *Contexts*: what a process holds "
        "before its first tensor. *Moves*: an idle session's memory goes to the host and back. *Figures*: who uses how much.",
        "",
        f"| | {' | '.join(PARTS)} | then |",
        f"| --- | {' | '.join('---' for _ in PARTS)} | --- |",
    ]
    parts += [f"| {one.name} | {' | '.join(one.works)} | {one.then} |" for one in LIMITS.values()]
    return _page(parts)


PAGES: dict[str, Callable[[], str]] = {
    "cli": commands,
    "python": python,
    "settings": settings,
    "rest": rest,
    "events": events,
    "wire": wire,
    "errors": error_codes,
    "metrics": metrics,
    "limits": limits,
}


def write_all(folder: Path) -> None:
    """Write each page that has changed, so that Sphinx builds again only what it must."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        text, path = make(), folder / f"{name}.md"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _wide(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=100)


def _page(parts: Iterable[str]) -> str:
    return "\n".join(parts) + "\n"


def _first(thing: Any) -> str:
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split())


def _last(reference: str) -> str:
    return reference.rpartition("/")[2]


def _traits(cls: Any) -> Iterator[tuple[str, Any, str]]:
    for name, trait in sorted(cls.class_traits(config=True).items()):
        # Only ours: a trait of Jupyter's own is in Jupyter's documentation.
        if (trait.this_class.__module__ or "").startswith("jupyter_salus"):
            yield name, trait.default_value, " ".join(trait.help.split())


def _tree(cls: type[errors.SalusError]) -> Iterator[type[errors.SalusError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _tree(below)


def _type_text(hint: Any) -> str:
    return (hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))).replace("|", "or")

"""`jupyter salus …`: the command line. `main` is the console script; a command's module is imported when it is chosen.

Exit codes: 0 done, 1 failed, 2 bad usage. With `--json` the answer, or the error, is one JSON object on the output.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadAddress, BadValue, SalusError
from ..protocol.version import VERSION
from .parser import BAD_USAGE, Parser
from .table import COMMANDS, Command
from .units import printable

#: Errors that say that the command line itself is wrong.
_BAD_USAGE = (BadAddress, BadValue)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors become one line on the error output."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    Parser.line = tuple(arguments)
    chosen = next((one for one in arguments if not one.startswith("-")), None)
    parser = _parser(chosen)
    if chosen is None and not any(one in ("-h", "--help", "--version") for one in arguments):
        parser.print_help(sys.stderr)
        return BAD_USAGE
    command = COMMANDS.get(chosen or "")
    if command is not None and command.delegate is not None:
        return _delegate(command, arguments[arguments.index(str(chosen)) + 1 :])
    try:
        parsed, rest = parser.parse_known_args(arguments)
        if rest:
            _take_rest(parsed, rest)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else BAD_USAGE
    return _run(parsed)


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser with every command's name and summary, and with the options of the chosen one alone."""
    parser = Parser(
        prog="jupyter salus", description="One GPU for many notebooks: see who has it, who waits and why; change it."
    )
    parser.add_argument("--version", action="version", version=f"jupyter_salus {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS.values():
        sub = commands.add_parser(command.name, help=command.summary, description=command.summary)
        if command.name == chosen and command.delegate is None:
            module = importlib.import_module(command.module)
            module.configure(sub, command.name)
            sub.set_defaults(run=module.run, parser=sub)
    return parser


def _take_rest(parsed: argparse.Namespace, rest: list[str]) -> None:
    """argparse takes a list of names only where they stand together: `run A --stagger 1 B` is meant as it reads."""
    notebooks: list[Path] | None = getattr(parsed, "notebooks", None)
    if notebooks is None or any(one.startswith("-") for one in rest):
        chosen: Parser = parsed.parser
        chosen.error(f"unrecognized arguments: {' '.join(rest)}")
    notebooks.extend(Path(one) for one in rest)


def _delegate(command: Command, arguments: list[str]) -> int:
    """Hand the rest of the line to a part that reads it by itself."""
    target = getattr(importlib.import_module(command.module), str(command.delegate))
    try:
        code = target(arguments)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
            return 1
        return left.code or 0
    except SalusError as error:
        return _failed(error, as_json="--json" in arguments)
    return code if isinstance(code, int) else 0


def _run(parsed: argparse.Namespace) -> int:
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except SalusError as error:
        return _failed(error, as_json=getattr(parsed, "json", False))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # `jupyter salus journal | head`: nobody reads on, which is no failure; the flush at exit must not say so either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _failed(error: SalusError, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"code": error.code, "message": error.message, "detail": error.detail}))
    message = printable(error.message, keep="\n")
    print(f"jupyter salus: {message}", file=sys.stderr)
    return BAD_USAGE if isinstance(error, _BAD_USAGE) else 1

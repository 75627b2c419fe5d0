"""The parser of one command line: what argparse does, with one form for everything that a line can be wrong in."""

from __future__ import annotations

import argparse
import json
import sys
from typing import NoReturn

BAD_USAGE = 2


class Parser(argparse.ArgumentParser):
    """Says a mistake in one line that begins with the command, and where `--json` stands on the line as an object, too."""

    #: The words of the line that is read, set by `main`: where an error is found, nothing of it may be parsed yet.
    line: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Called by argparse for whatever is wrong. Ends with 2."""
        self.exit(bad_usage(self.prog, message, as_json="--json" in Parser.line))


def bad_usage(command: str, message: str, as_json: bool = False) -> int:
    """Say what is wrong with a line of this command, and where its options are told. Returns the exit code."""
    if as_json:
        print(json.dumps({"code": "bad_usage", "message": message, "detail": {"command": command}}))
    print(f"{command}: {message} (`{command} --help` lists its options)", file=sys.stderr)
    return BAD_USAGE

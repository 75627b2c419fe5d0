"""What two runs of the corpus may differ in, taken out: ids, times, addresses, the kernel's pid, where a stream was cut.

All else stays, and is compared as text. A notebook is made of the outputs as a front end makes it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat

from tests.corpus.conversation import Message, Said

#: Removed from what is compared, in this order. An id is replaced by its number, in the order in which ids appear.
_TIMES = (
    (re.compile(r"/ipykernel_\d+/"), "/ipykernel_PID/"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "0xADDRESS"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?"), "DATE"),
    (re.compile(r"[\d.]+(?:e[+-]?\d+)? (?:seconds|ns|µs|μs|us|ms|s|min)\b(?: \d+(?:\.\d+)? ?(?:ms|s)\b)*"), "TIME"),
    # The columns of a profile: times, and the same a call.
    (re.compile(r"(?<= )\d+\.\d{3}(?= )"), "TIME"),
    # Timings that vary much get one of two remarks.
    (re.compile(r"The slowest run took [\d.]+ times longer than the fastest[^\"]*?cached\.\\n"), ""),
)
_IDS = re.compile(
    r"(?<![0-9a-f])(?:[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?:_\d+_\d+)?|[0-9a-f]{16})(?![0-9a-f])"
)

#: Numbers that the debugger gives: of its messages, of processes and ports, of objects by their addresses; and how many frames
#: lie below the cell, the guest's among them where its folder is outside of the kernel's site-packages.
_NUMBERED = ("seq", "variablesReference", "port", "systemProcessId", "processId", "threadId", "totalFrames")


class Sameness:
    """The ids of one run, by the number that stands for each; `folder` is where its kernel worked."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._ids: dict[str, str] = {}

    def text(self, value: Any) -> str:
        """A value as text, without what may differ."""
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).replace(self._folder, "FOLDER")
        text = _IDS.sub(lambda found: self._ids.setdefault(found[0], f"ID{len(self._ids)}"), text)
        for pattern, replacement in _TIMES:
            text = pattern.sub(replacement, text)
        return text

    def step(self, said: Said) -> str:
        """All that came of one step."""
        return self.text(
            {
                "replies": [_timeless(one) for one in said.replies],
                "asked": [_timeless(one) for one in said.asked],
                "published": [
                    _timeless(one)
                    for one in streams_joined(_without_line(said.published))
                    if one["msg_type"] != "debug_event"
                ],
                # From a thread of its own, in an order of its own.
                "debugger": [_timeless(one) for one in said.published if _is_debugged(one)],
            }
        )

    def notebook(self, run: list[Said]) -> bytes:
        """The notebook of all cells as it is saved."""
        cells: list[Any] = []
        for said in run:
            for code, messages in said.cells:
                outputs = [nbformat.from_dict(one) for one in json.loads(self.text(outputs_of(messages)))]
                cells.append(nbformat.v4.new_code_cell(code, id=f"cell-{len(cells)}", outputs=outputs))
        return nbformat.writes(nbformat.v4.new_notebook(cells=cells)).encode()


def streams_joined(messages: list[Message]) -> list[Message]:
    """Streams come in pieces, cut by time: neighbours of one name are one."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if (
            last is not None
            and message["msg_type"] == last["msg_type"] == "stream"
            and message["content"]["name"] == last["content"]["name"]
        ):
            text = last["content"]["text"] + message["content"]["text"]
            joined[-1] = {**last, "content": {**last["content"], "text": text}}
        else:
            joined.append(message)
    return joined


def outputs_of(messages: list[Message]) -> list[dict[str, Any]]:
    """A cell's outputs from what was published for it, as a notebook holds them."""
    outputs: list[dict[str, Any]] = []
    clear = False
    for message in streams_joined(messages):
        kind, content = message["msg_type"], message["content"]
        if kind == "clear_output":
            clear = content["wait"]
            if not clear:
                outputs.clear()
        elif kind == "update_display_data":
            continue  # shown where its display is: in the messages
        elif kind in ("stream", "display_data", "execute_result", "error"):
            if clear:
                outputs.clear()
                clear = False
            outputs.append(dict(nbformat.v4.output_from_msg({"header": {"msg_type": kind}, "content": content})))
    return outputs


def _without_line(messages: list[Message]) -> list[Message]:
    """Without the line that says what a cell waits for, and its renewals and removal: it stands only while it waits."""
    kept: list[Message] = []
    stands = False
    for message in messages:
        if message["msg_type"] == "stream" and message["content"]["text"].startswith("Salus: "):
            stands = True
        elif stands and message["msg_type"] == "clear_output":
            stands = message["content"]["wait"]
        else:
            kept.append(message)
    return kept


def _is_debugged(message: Message) -> bool:
    """Whether the debugger tells something; which modules it came across isn't in any order."""
    return message["msg_type"] == "debug_event" and message["content"].get("event") != "module"


def _timeless(message: Message) -> Message:
    """Without what carries an id or a time by its key."""
    return {
        **message,
        "content": _without(message["content"]),
        "metadata": {name: value for name, value in message["metadata"].items() if name != "started"},
    }


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(one) for name, one in value.items() if name not in _NUMBERED}
    if isinstance(value, list):
        return [_without(one) for one in value]
    return value

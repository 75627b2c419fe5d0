"""Runs what a test sends, line by line, in a process of its own: `{"n", "code", "apart"}` in, `{"n", "value"|"error"}` out.

`apart`: on a thread of its own, so that it may wait while more is run.
"""

from __future__ import annotations

import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
lock = threading.Lock()
space: dict[str, object] = {}


def run(order: dict[str, object]) -> None:
    answer: dict[str, object] = {"n": order["n"]}
    try:
        code = str(order["code"])
        try:
            answer["value"] = eval(code, space)
        except SyntaxError:
            exec(code, space)
            answer["value"] = None
        json.dumps(answer)
    except BaseException as error:
        answer["value"] = None
        answer["error"] = f"{type(error).__name__}: {error}"
        answer["code"] = getattr(error, "code", None)
    with lock:
        out.write(json.dumps(answer) + "\n")
        out.flush()


for line in sys.stdin:
    order = json.loads(line)
    if order.get("apart"):
        threading.Thread(target=run, args=(order,), daemon=True).start()
    else:
        run(order)
# Threads that still wait for a turn are no reason to stay.
os._exit(0)

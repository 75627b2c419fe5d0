"""A backend's journal given to a fresh scheduler: the same events at the same times give the same decisions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from time import thread_time_ns
from typing import TextIO

from ..backend.core.scheduler import Scheduler
from ..backend.daemon import journal
from ..errors import PeerError, SalusError
from .report import percentile
from .table import MalformedFile


def replay(path: Path, stream: TextIO | None, *, as_json: bool) -> int:
    """Play the journal at `path`, write each decision with its time to `stream`, and print the sums. Returns the exit code.

    Raises `MalformedFile` for a journal that can't be read. What the backend refused is refused here too and counted.
    """
    try:
        scheduler = Scheduler(journal.config_of(path))
        happened = list(journal.replay(path))
    except OSError as error:
        raise MalformedFile(f"cannot read {path}: {error.strerror or error}") from None
    except PeerError as error:
        raise MalformedFile(error.message) from None
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedFile(f"cannot replay {path}: {error}") from None
    kinds: Counter[str] = Counter()
    refused = 0
    spent: list[int] = []
    for event, now in happened:
        begin = thread_time_ns()
        try:
            decided = scheduler.handle(event, now)
        except SalusError:
            refused += 1
            continue
        spent.append(thread_time_ns() - begin)
        for decision in decided:
            kinds[type(decision).__name__] += 1
            if stream is not None:
                stream.write(json.dumps({"t": now, "decision": type(decision).__name__, **asdict(decision)}) + "\n")
    scheduler.check_invariants()
    figures = {
        "events": len(happened),
        "events_refused": refused,
        "seconds": happened[-1][1] - happened[0][1] if happened else 0.0,
        "decisions": dict(sorted(kinds.items())),
        "decision_us_p50": _us(percentile(spent, 50)),
        "decision_us_p99": _us(percentile(spent, 99)),
    }
    print(json.dumps(figures) if as_json else "\n".join(f"{name:<18} {value}" for name, value in figures.items()))
    return 0


def _us(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1000

"""A backend for one run alone: its own socket, journal and settings, gone when the run is."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import BackendGone

#: How long a backend may take to serve, and to end when asked, in seconds.
PATIENCE_S = 60.0


@contextmanager
def own_backend(options: Sequence[str]) -> Iterator[str]:
    """Serve a backend with these options of `jupyter salus backend`, and yield its socket's path.

    Raises `BackendGone`, with the end of its log, if it doesn't come up.
    """
    # Not below TMPDIR: a socket's path has 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="jupyter-salus-run-", dir="/tmp"))
    process: subprocess.Popen[bytes] | None = None
    try:
        process = _start(folder, options)
        yield str(folder / "backend.sock")
    finally:
        if process is not None:
            _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    log = folder / "backend.log"
    reader, writer = os.pipe()
    # Should this process be killed, the backend ends itself once the kernels are gone.
    command = [
        sys.executable,
        "-m",
        "jupyter_salus.backend",
        f"--socket={folder / 'backend.sock'}",
        f"--ready-fd={writer}",
    ]
    command += ["--exit-when-idle=60", *options]
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,
                env={**os.environ, "JUPYTER_SALUS_STATE_DIR": str(folder / "state")},
            )
        os.close(writer)
        writer = -1
        # The pipe ends without a word if the backend does.
        serves = bool(select.select([reader], [], [], PATIENCE_S)[0]) and os.read(reader, 1) != b""
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if not serves:
        _end(process)
        raise BackendGone(f"cannot start a backend for this run: {_last_line(log)}")
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it ended without a word"

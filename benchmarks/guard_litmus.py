"""The gate's litmus test over 10^8 rounds: does any call slip past a gate that was shut?

python benchmarks/guard_litmus.py [ROUNDS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jupyter_salus.native import build  # noqa: E402


def main() -> int:
    rounds = sys.argv[1] if len(sys.argv) > 1 else "100000000"
    native = Path(build.__file__).parent
    command = build.compiler()
    if command is None:
        print("cannot run the litmus test: no C compiler found", file=sys.stderr)
        return 1
    worst = 0
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "litmus"
        sources = [ROOT / "tests/native/programs/litmus.c", native / "guard/gate.c"]
        flags = ["-std=gnu11", "-O2", "-pthread", f"-I{native / 'guard'}"]
        subprocess.run([*command, *flags, "-o", program, *sources], check=True)
        print("| barrier | rounds | times shut | slipped past |\n| --- | --- | --- | --- |")
        for barrier in ("membarrier", "fence"):
            out = subprocess.run([program, rounds, barrier], capture_output=True, text=True, check=True).stdout
            made, shut, slipped, _ = out.split()
            print(f"| {barrier} | {made} | {shut} | {slipped} |", flush=True)
            worst = max(worst, int(slipped))
    return 1 if worst else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A sample of commands that are ended while they write (docs/kills.md): other seeds by MESHWRIGHT_FUZZ."""

import subprocess
import sys
from pathlib import Path

from draws import FUZZ, draws

ROOT = Path(__file__).resolve().parents[1]
DRAWS = 12


def test_drawn_kills_leave_the_old_files_or_the_new_ones(capfd):
    command = ["-m", "benchmarks.kills", "--fork", "--draws", str(draws(DRAWS)), "--seed", str(29 + FUZZ)]
    with capfd.disabled():
        print(f"\nkills sample: python {' '.join(command)}", flush=True)
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr

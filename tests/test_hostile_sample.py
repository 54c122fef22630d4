"""A sample of the hostile campaign (``python -m benchmarks.hostile``, docs/hostile.md): other seeds by MESHWRIGHT_FUZZ."""

import subprocess
import sys
from pathlib import Path

from draws import FUZZ, draws

ROOT = Path(__file__).resolve().parents[1]
CASES = 40


def test_drawn_hostile_cases_end_well_and_lose_nothing(capfd):
    seed = 13 + FUZZ
    with capfd.disabled():
        print(f"\nhostile sample: python -m benchmarks.hostile --seed {seed} --cases {draws(CASES)}", flush=True)
    command = [sys.executable, "-m", "benchmarks.hostile", "--tree", str(ROOT), "--cases", str(draws(CASES)), "--seed", str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr

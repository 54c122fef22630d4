"""What a command does before it computes: one thread for NumPy, which no process started from here inherits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, os
from meshwright.cli.numbers import THREADS, prepare
prepare()
import numpy
print(json.dumps([os.environ.get(THREADS), len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1]))
"""


def _left(environment: dict[str, str]) -> list[object]:
    known = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=known | environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_numpy_has_one_thread_and_the_variable_is_taken_back():
    assert _left({}) == [None, 1]


@pytest.mark.parametrize("said", ["1", "2"])
def test_a_number_of_threads_that_somebody_set_stays(said):
    assert _left({"OPENBLAS_NUM_THREADS": said})[0] == said

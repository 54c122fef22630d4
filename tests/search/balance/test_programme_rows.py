"""The solver behind programmes of rows."""

from __future__ import annotations

import subprocess
import sys

PROGRAMME = """
from meshwright.search.balance.rows import Rows
rows = Rows()
one = rows.variable(0.0, None, integer=True)
rows.add({one: 2.0}, 3.0, None)
rows.cost[one] = 1.0
assert rows.solve(10.0).objective == 2.0
"""


def test_a_solver_prints_nothing():
    """The first one of a process says whose it is, into what may be a document of JSON."""
    done = subprocess.run([sys.executable, "-c", PROGRAMME], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")

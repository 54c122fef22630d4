"""How a short process computes: NumPy on one thread, garbage looked for seldom."""

from __future__ import annotations

import gc
import os

THREADS = "OPENBLAS_NUM_THREADS"
SELDOM = 100_000
"""Objects more than before at which garbage is looked for: a verb makes values that live until it ends."""


def prepare() -> None:
    """Load NumPy for what a verb computes.

    Its products are small here, and threads that wait for the next one spend more CPU time than all that is computed. A number of
    threads that somebody set stays; ours is taken back once the library has read it, so that no process started from here has it.
    """
    gc.set_threshold(SELDOM, 50, 50)
    if THREADS in os.environ:
        return
    os.environ[THREADS] = "1"
    try:
        import numpy  # noqa: F401  the library reads the variable when it is loaded
    finally:
        del os.environ[THREADS]

"""How a short process computes: NumPy on one thread."""

from __future__ import annotations

import os

THREADS = "OPENBLAS_NUM_THREADS"


def prepare() -> None:
    """Load NumPy for what a verb computes.

    Its products are small here, and threads that wait for the next one spend more CPU time than all that is computed. A number of
    threads that somebody set stays; ours is taken back once the library has read it, so that no process started from here has it.
    """
    if THREADS in os.environ:
        return
    os.environ[THREADS] = "1"
    try:
        import numpy  # noqa: F401  the library reads the variable when it is loaded
    finally:
        del os.environ[THREADS]

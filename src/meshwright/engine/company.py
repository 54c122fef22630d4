"""One rank of several that stay: ``torchrun ... -m meshwright.engine.company FOLDER`` runs one task after another, each in groups
of its own, until one of them fails.

An order is a file ``orders/1``, ``orders/2`` ... that names a folder with a task (``launch.write_task``); what the task prints goes
into its ``output.log``, and each rank leaves ``result-R`` or ``failure-R`` there. Groups are made anew for every task, by a file of
its folder, and taken down behind it. For processors: of an accelerator, what one task has left allocated would count for the next.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

from meshwright.engine.worker import end_with_parent, served

POLL_S = 0.02
LOG = "output.log"


def main(place: Path) -> int:
    """Tasks until one fails -> 1."""
    end_with_parent()
    rank, ranks = int(os.environ["RANK"]), os.environ["WORLD_SIZE"]
    for name in ("MASTER_ADDR", "MASTER_PORT"):  # ranks of a task meet at a file of its own
        os.environ.pop(name, None)
    if rank == 0:
        new = place / "ranks.new"
        new.write_text(ranks)
        new.rename(place / "ranks")
    number = 1
    while True:
        order = place / "orders" / str(number)
        while not order.exists():
            time.sleep(POLL_S)
        if status := _run(Path(order.read_text(encoding="utf-8")), rank):
            return status
        number += 1


def _run(folder: Path, rank: int) -> int:
    """One task in its folder -> exit status."""
    os.chdir(folder)
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    status = served(folder, rank)
    sys.stdout.flush()
    sys.stderr.flush()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    gc.collect()
    return status


if __name__ == "__main__":
    status = main(Path(sys.argv[1]))
    os._exit(status)  # threads of communication libraries may not let go of an interpreter that ends by itself

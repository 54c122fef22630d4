"""A task run by ranks that somebody else has started (torchrun, or srun with torchrun's variables)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.engine.classify import Failure, classify
from meshwright.engine.launch import require_torch, write_task
from meshwright.errors import MeshwrightError, NoAnswerError, fault

if TYPE_CHECKING:
    from meshwright.engine.launch import Task

WANTED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def started_by_another() -> bool:
    """Whether this process is a rank of a group that another program started."""
    return "RANK" in os.environ


def joined_world() -> int:
    """Ranks of that group.

    Errors:  InputError where the variables by which ranks find each other are missing, are no numbers, or do not go together.
    """
    missing = [name for name in WANTED if not os.environ.get(name)]
    if missing:
        raise fault("join.variables", "RANK is set, as under torchrun, but {missing} are not", missing=", ".join(missing))
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not os.environ[name].isdecimal():
            raise fault("join.number", "{name}={value!r} is not a number", name=name, value=os.environ[name])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank >= world:
        raise fault("join.rank", "RANK={rank} is not in a world of WORLD_SIZE={world}", rank=rank, world=world)
    return world


def join(task: Task) -> tuple[int, Any]:
    """Run the task as this rank -> (rank, what it returned).

    Errors:  NoAnswerError with what this rank saw.
    """
    from meshwright.engine.worker import _run

    require_torch()
    rank = int(os.environ["RANK"])
    with tempfile.TemporaryDirectory(prefix="meshwright-join-") as name:
        write_task(Path(name), task)
        try:
            return rank, _run(Path(name), rank)
        except MeshwrightError:
            raise
        except Exception as error:
            kind, text = classify(error)
            raise NoAnswerError(Failure(rank=rank, kind=kind, text=text).message) from error

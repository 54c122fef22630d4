"""A profile of an allocation: every process that torchrun or srun started is a rank, over all nodes; the first one answers."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from meshwright.engine.classify import Failure, classify
from meshwright.engine.join import joined_world
from meshwright.engine.launch import require_torch
from meshwright.engine.profile.jobs import Job, World
from meshwright.engine.profile.machine import this_machine
from meshwright.engine.profile.run import THREADS, Watch, missing_jobs, profile_of, request_of
from meshwright.errors import InputError, MeshwrightError, NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.engine.profile.run import Asked, Profile

TIMEOUT_S = 600


def joined_ranks(environment: Mapping[str, str] = os.environ) -> World | None:
    """The ranks that this process is one of; None where nobody started several.

    Errors:  InputError where the surroundings do not say a world that can be.
    """
    if "RANK" not in environment or environment.get("WORLD_SIZE", "1") == "1":
        return None
    ranks = joined_world()
    said = environment.get("LOCAL_WORLD_SIZE", "")
    if not said:
        raise fault("profile.local", "LOCAL_WORLD_SIZE is not set: it says how many of the {ranks} ranks are on a node, so which "
                    "links are measured", ranks=ranks)
    if not said.isdecimal() or int(said) < 1 or ranks % int(said):
        raise fault("profile.nodes", "{ranks} ranks are not on nodes of LOCAL_WORLD_SIZE={said} each", ranks=ranks, said=said)
    return World(ranks=ranks, ranks_per_node=int(said))


def measured_joined(
    asked: Asked, world: World, tick: Callable[[float, float], None] | None = None
) -> Profile | None:
    """Measure as one rank of a world -> the profile on the first rank, None on the others.

    Errors:  InputError where it cannot start; NoAnswerError with what this rank saw.
    """
    require_torch()
    try:
        return _measured(replace(asked, ranks=world.ranks), world, tick)
    except MeshwrightError:
        raise
    except Exception as error:
        kind, text = classify(error)
        raise NoAnswerError(Failure(rank=int(os.environ["RANK"]), kind=kind, text=text).message) from error


def _measured(asked: Asked, world: World, tick: Callable[[float, float], None] | None) -> Profile | None:
    import torch
    import torch.distributed as dist

    from meshwright.engine.profile.clock import require
    from meshwright.engine.profile.rank import measure

    begun = monotonic()
    torch.set_num_threads(THREADS)
    devices = require(asked.kind)
    if asked.kind != "cpu":
        place = os.environ.get("LOCAL_RANK") or int(os.environ["RANK"]) % world.ranks_per_node
        torch.get_device_module(asked.kind).set_device(int(place) % devices)
    dist.init_process_group(dist.get_default_backend_for_device(asked.kind), timeout=timedelta(seconds=TIMEOUT_S))
    machine = this_machine(asked.kind, ranks=world.ranks, ranks_per_node=world.ranks_per_node, threads=THREADS)
    first = dist.get_rank() == 0
    found: list[tuple[tuple[Job, ...], tuple[Job, ...]] | InputError | None] = [None]
    if first:
        try:
            found = [missing_jobs(asked, machine, world)]
        except InputError as error:
            found = [error]
    dist.broadcast_object_list(found)
    if found[0] is None or isinstance(found[0], InputError):
        raise found[0] if isinstance(found[0], InputError) else AssertionError("the first rank has said")
    todo, missing = found[0]
    with Watch(asked.samples, len(missing), len(todo), tick if first else None):
        too_long = measure(request_of(asked, world, todo, missing)) if missing else ()
    dist.barrier()
    dist.destroy_process_group()
    return profile_of(asked, machine, monotonic() - begun, len(todo) - len(missing), too_long) if first else None

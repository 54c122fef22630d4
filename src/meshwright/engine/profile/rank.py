"""What one rank of a profile does: builds benchmarks and times them with the other ranks; the first rank keeps the samples."""

from __future__ import annotations

import gc
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.engine.profile.bench import Place
from meshwright.engine.profile.jobs import Job, work_flops
from meshwright.engine.profile.machine import load_average
from meshwright.engine.profile.request import Care
from meshwright.engine.profile.store import append
from meshwright.engine.profile.timing import Timing, greatest, time_together

if TYPE_CHECKING:
    from meshwright.engine.profile.machine import Kind
    from meshwright.engine.profile.request import Request

TOGETHER = 6
"""Jobs that are timed in turn."""
PROBE_SIZES = {"cpu": {"rows": 256, "columns": 512, "inner": 512}}
ACCELERATOR_PROBE_SIZES = {"rows": 4096, "columns": 4096, "inner": 4096}
"""Of the product that tells how fast products are here, and so which jobs are too long; large enough to fill the device."""
PROBE_CARE = Care(tolerance=0.1, block_s=0.02)
PROBE_LIMIT_S = 0.2
SHARE_FOR_BLOCKS = 0.8
"""Of the time that a job has; the rest is for building it."""
LONGEST_JOBS = 3.0
"""Jobs that would take that many times their share are left out."""
CALLS_OF_A_JOB = 9
"""How often a job is called at least: to warm up, and in the fewest blocks."""


def measure(request: Request) -> tuple[str, ...]:
    """Time all jobs, every rank the same; samples go to the file -> labels of jobs that are too long here."""
    place = Place(device_of(request.kind), request.world)
    sizes = PROBE_SIZES.get(request.kind, ACCELERATOR_PROBE_SIZES)
    job = Job(bench="product", arguments={**sizes, "dtype": "bf16", "direction": "forward"})
    probe = Timing(place, job, PROBE_CARE, load=0.0)
    time_together([probe], PROBE_LIMIT_S, lambda _: None)
    rate = work_flops(job) / probe.sample().seconds
    too_long = {job.label for job in request.jobs if work_flops(job) / rate * CALLS_OF_A_JOB > LONGEST_JOBS * request.job_s}
    left = [job for job in request.jobs if job.label not in too_long]
    begun, budget_s = monotonic(), request.job_s * len(left)
    path = Path(request.samples)

    def keep(timing: Timing) -> None:
        if dist.get_rank() == 0:
            append(path, timing.sample())

    gc.disable()
    while left:
        now, left = left[:TOGETHER], left[TOGETHER:]
        (spent_s, load) = greatest(place, [monotonic() - begun, load_average()])
        limit_s = SHARE_FOR_BLOCKS * max(budget_s - spent_s, 0.0) / (len(now) + len(left))
        time_together([Timing(place, job, request.care, load=load) for job in now], limit_s, keep)
        gc.collect()
    gc.enable()
    return tuple(sorted(too_long))


def device_of(kind: Kind) -> torch.device:
    """This rank's device; the launcher has chosen it."""
    return torch.device("cpu") if kind == "cpu" else torch.device(kind, torch.get_device_module(kind).current_device())

"""The fullest stage of the plan on one device, with Megatron-LM's fake process group (from core 0.16 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.base import File, Options
from meshwright.frameworks.manual import common_values, launch_variables, template
from meshwright.frameworks.megatron.environment import variables
from meshwright.frameworks.megatron.flags import Version
from meshwright.frameworks.megatron.hybrid import program

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

SINCE = 16
"""The minor version that has the fake process group."""


def can_probe(case: Case, version: Version) -> bool:
    """Whether one device can stand for a rank: "Fake process group is not supported with flex token dispatcher."."""
    return version.minor >= SINCE and not (case.model.is_moe and case.implementation.expert_deduplication)


def probe_stage(options: Options) -> int:
    """The stage that is looked at: the fullest one as predicted, else the first, which has most micro-batches in flight."""
    return options.estimate.peak_stage if options.estimate else 0


def probe_files(case: Case, layout: Layout, version: Version, options: Options) -> tuple[File, ...]:
    """``probe.sh``, where the version can run it."""
    if not can_probe(case, version):
        return ()
    stage = probe_stage(options)
    values = {
        **common_values(case, layout, options), "version": version, "program": program(case.model, version), "stage": stage,
        "variables": launch_variables(variables(case, layout, version.minor), options), "moe": case.model.is_moe,
        "rank": stage * layout.world // layout.pipeline_parallel,
    }
    return (File(path="probe.sh", text=template("megatron_probe.sh.j2").render(values), executable=True),)


def probe_note(case: Case, version: Version, options: Options) -> str:
    """How to run it, and what to do with its result."""
    if not can_probe(case, version):
        return ""
    stage = probe_stage(options)
    return (
        f"`MEGATRON_PATH=/path/to/Megatron-LM bash probe.sh` runs stage {stage}, the fullest one, for three steps on one "
        f"device, without "
        "any other: its collectives return at once, so that times and losses mean nothing, and buffers of NCCL are not in it. "
        "Its log "
        "says `memory (MB) | ... | max allocated: X` (MB of 2^20 bytes); `meshwright estimate --request plan.yaml --anchor-memory "
        f"{stage}=XMiB` corrects the prediction by it."
    )

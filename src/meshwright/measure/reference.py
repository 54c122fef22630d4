"""The reference training step as a framework that the search plans for: what it can run, and a case for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.catalog import calibration, implementation, optimizer
from meshwright.catalog import precision as precision_named
from meshwright.domain.case import Case
from meshwright.domain.features import Features
from meshwright.domain.layout import Overlap
from meshwright.domain.training import Batch, Training
from meshwright.engine.refusals import RECOMPUTED, refused
from meshwright.engine.request import Options
from meshwright.engine.run import request_of
from meshwright.search import SearchOptions, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.cluster import Cluster
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.engine.request import Backend
    from meshwright.errors import Message
    from meshwright.search import PlanResult

IMPLEMENTATION = "reference"
"""The implementation that predicts the reference step."""
FEATURES = Features(
    name="reference", schedules=("1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"), zero_stages=(0, 1, 2, 3),
    parameter_shards_with_pipeline=True, context_kinds=("ulysses",), expert_tensor_parallel=False, selective_modules=RECOMPUTED,
    positions=("rope", "learned", "alibi", "none"), interleaved_needs_multiple=False, optimizer_offload=False,
    recompute_per_stage=True, overlaps=("grad", "param", "p2p"), tasks=("pretrain",),
)
"""What the search may look at; ``engine.refusals`` has the last word on every layout."""
NOTHING = Overlap(gradient_reduce=False, parameter_gather=False, tensor=False, point_to_point=False, expert=False)


def case_of(model: Model, cluster: Cluster, *, global_batch: int, sequence_tokens: int, precision: str = "bf16") -> Case:
    """A case of the reference step.

    Units:   ``global_batch`` sequences of ``sequence_tokens`` tokens each.
    Errors:  InputError for a precision that is not known.
    """
    kernels = implementation(IMPLEMENTATION)
    recipe = precision_named(precision, kernels.gradient_dtype)
    return Case(
        model=model, cluster=cluster, batch=Batch(global_batch_sequences=global_batch, sequence_tokens=sequence_tokens),
        training=Training(task="pretrain", precision=recipe, optimizer=optimizer("adamw")), implementation=kernels,
        calibration=calibration("shipped", cluster, framework=kernels.family, precision=recipe.name),
    )


def overlap_of(layout: Layout, backend: Backend) -> Overlap:
    """What runs beside compute: on a CPU nothing, on an accelerator what FSDP2 and PyTorch's schedules start early."""
    if backend == "cpu":
        return NOTHING
    return Overlap(gradient_reduce=layout.zero_stage >= 2, parameter_gather=layout.zero_stage == 3)


def refusals(case: Case, layout: Layout, options: Options) -> tuple[Message, ...]:
    """Why the reference step cannot run a layout; empty where it can.

    Errors:  InputError where it cannot run anything of the case (its precision, its task).
    """
    return refused(request_of(case, layout, options))


def planned(case: Case, options: Options, *, top: int, progress: Callable[[int, int], None] | None = None) -> PlanResult:
    """The best layouts of a case that the reference step can run, as ``meshwright plan`` would find them for a framework."""
    return plan(
        case, FEATURES, SearchOptions(top=top, pinnable=False), progress=progress,
        acceptable=lambda layout: not refusals(case, layout, options), said=lambda layout: overlap_of(layout, options.backend),
    )

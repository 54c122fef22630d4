"""The keys of verl's Megatron engine that express a layout, and the layout as those keys have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Overlap, Selective
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.layout_arguments import block_layers
from meshwright.frameworks.megatron.pipeline import is_even, layout_string, split_of
from meshwright.frameworks.planned import Planned
from meshwright.frameworks.verl.keys import Places, is_tuning, micro_batches

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

SECTION = "megatron"
UNSPOKEN = (
    "overlap of point-to-point messages: on with virtual stages, and nothing else",
    "overlap of gradients over one rank",
    "etp and ep: of a model without experts",
)


def places(case: Case) -> Places:
    """The keys of the trainer that runs a case."""
    return Places("" if is_tuning(case) else SECTION)


def keys(engine: str) -> tuple[Says, ...]:
    """Keys of the engine that say one knob."""
    return (
        Says(f"{engine}.tensor_model_parallel_size", "tensor_parallel"),
        Says(f"{engine}.pipeline_model_parallel_size", "pipeline_parallel"),
        Says(f"{engine}.virtual_pipeline_model_parallel_size", "virtual_stages", when=lambda plan: plan.vp > 1),
        Says(f"{engine}.context_parallel_size", "context_parallel"),
        Says(f"{engine}.sequence_parallel", "sequence_parallel", default=True, when=lambda plan: plan.tp > 1),
        # The expert grid is explicit, because its tensor degree would else be that of the dense layers.
        Says(f"{engine}.expert_model_parallel_size", "expert_parallel", when=lambda plan: plan.moe),
        Says(f"{engine}.expert_tensor_parallel_size", "expert_tensor_parallel", when=lambda plan: plan.moe),
        Says(f"{engine}.use_distributed_optimizer", lambda plan: plan.zero == 1),
        Says(f"{engine}.override_ddp_config.overlap_grad_reduce", lambda plan: plan.layout.overlap.gradient_reduce,
             when=lambda plan: plan.ranks > 1),
    )


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout; what is off is absent."""
    where = places(case)
    values = decided(keys(where.engine), Planned(case, layout, release))
    override = f"{where.engine}.override_transformer_config"
    inside = {f"{override}.{name}": value for name, value in (_stages(case, layout) | _recompute(case, layout)).items()}
    return {**values, **inside, **_offload(layout, where), **micro_batches(case, layout, where)}


def _stages(case: Case, layout: Layout) -> dict[str, object]:
    """The layout string, where stages differ."""
    split = split_of(case, layout)
    return {} if layout.pipeline_parallel == 1 or is_even(split) else {"pipeline_model_parallel_layout": layout_string(split)}


def _recompute(case: Case, layout: Layout) -> dict[str, object]:
    """What is computed again in the backward pass."""
    match layout.recompute:
        case Selective(modules=modules):
            return {"recompute_granularity": "selective", "recompute_modules": list(modules)}
        case Full(layers=layers) if layers != 0:
            count = block_layers(layers, case, layout)
            return {} if count == 0 else {
                "recompute_granularity": "full", "recompute_method": "uniform" if count is None else "block",
                "recompute_num_layers": 1 if count is None else count,
            }
    return {}


def _offload(layout: Layout, where: Places) -> dict[str, object]:
    """Optimizer state that stays in host memory while it is updated."""
    override = f"{where.optimizer}.override_optimizer_config"
    return {} if not layout.offload else {
        f"{override}.optimizer_cpu_offload": True, f"{override}.optimizer_offload_fraction": 1.0,
        f"{override}.overlap_cpu_optimizer_d2h_h2d": True, f"{override}.use_precision_aware_optimizer": True,
    }


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as the engine has it: what its keys do not say takes the only value that there is."""
    plain = MEGATRON.normal(case, layout)
    ranks = layout.data_parallel * layout.context_parallel
    return replace(
        plain,
        overlap=Overlap(
            gradient_reduce=plain.overlap.gradient_reduce and ranks > 1, parameter_gather=False, tensor=False,
            point_to_point=True, expert=False,
        ),
    )

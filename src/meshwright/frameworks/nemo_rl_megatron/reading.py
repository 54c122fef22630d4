"""The sections of NeMo-RL's Megatron back end as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.frameworks.chatlearn.stages import plain, split_of_ends
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.nemo_rl.keys import MEGATRON
from meshwright.frameworks.nemo_rl.reading import Step, is_unknown, microbatch_of
from meshwright.frameworks.nemo_rl_megatron.deciding import CHECKPOINTING, DDP, ENDS, GRANULARITY, KEYS, MODULES, OPTIMIZER

if TYPE_CHECKING:
    from meshwright.estimate.split import Split
    from meshwright.frameworks.settings import Given

CHUNKS = f"{MEGATRON}.model_overrides"
"""Where fields of the model stand that have no key."""


def build(values: Values, step: Step, given: Given) -> Layout | None:
    """Degrees are keys, data parallelism is what is left of the trainer's devices."""
    tp, pp, cp, ep, etp = (
        told(KEYS, values, knob)
        for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "expert_tensor_parallel")
    )
    dp = data_parallel_of(values, step.world, tp * pp * cp)
    size = microbatch_of(values, step, dp)
    count = microbatches_of(values, step.sequences, size, dp)
    staged = _stages(values, pp, given)
    overrides = values.source.settings.get(CHUNKS)
    inside = overrides.value if overrides and isinstance(overrides.value, dict) else {}
    own = [name for name in (*inside, *(key.removeprefix(f"{CHUNKS}.") for key in values.source.settings
                                        if key.startswith(f"{CHUNKS}."))) if "pipeline" in name or "recompute" in name]
    if own:
        values.refuse("nemo-rl.overrides", "model_overrides says {keys}, which is of the layout and not read here",
                      keys=", ".join(dict.fromkeys(own)))
    if dp is None or count is None or staged is None or own:
        return None
    (split,) = staged
    ranks, sharded = dp * cp, values.bool(f"{OPTIMIZER}.use_distributed_optimizer")
    return Layout(
        tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel"), context_parallel=cp, pipeline_parallel=pp,
        expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp, optimizer_shards=ranks if sharded else 1,
        microbatch_sequences=size, num_microbatches=count, recompute=_recompute(values), stage_layers=split,
        offload=("optimizer",) if values.bool(f"{OPTIMIZER}.optimizer_cpu_offload") else (),
        overlap=Overlap(
            gradient_reduce=ranks > 1 and values.bool(f"{DDP}.overlap_grad_reduce"),
            parameter_gather=ranks > 1 and sharded and values.bool(f"{DDP}.overlap_param_gather"),
            tensor=False, point_to_point=True, expert=False,
        ),
    )


def _recompute(values: Values) -> Recompute:
    """What is computed again: nothing without the switch, modules, or all layers."""
    if not values.bool(CHECKPOINTING):
        return NoRecompute()
    if values.text(GRANULARITY, "full") == "selective":
        return Selective(modules=values.words(MODULES) or ("core_attn",))
    return Full()


def _stages(values: Values, pp: int, given: Given) -> tuple[Split | None] | None:
    """Layers by stage (None: even); None where that cannot be told."""
    first, last = (values.int(key) for key in ENDS)
    if pp == 1 or (first is None and last is None):
        if pp > 1 and any(is_unknown(values.source, key) for key in ENDS):
            values.refuse("nemo-rl.ends-elsewhere", "layers of the first and the last stage are in none of the files: read as "
                          "those "
                          "of all others")
        return (None,)
    if given.model is None:
        values.refuse("import.layers", "the files name only the layers of the ends: give --model")
        return None
    split = split_of_ends(given.model.num_layers, pp, first, last)
    if split is None:
        values.refuse("nemo-rl.ends", "{layers} layers do not fall on {stages} stages with {first} first and {last} last",
                      layers=given.model.num_layers, stages=pp, first=first, last=last)
        return None
    return (plain(split, given.model),)

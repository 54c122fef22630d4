"""The section of NeMo-RL's DTensor back end as a layout."""

from __future__ import annotations

from meshwright.domain.layout import Full, Layout, NoRecompute
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.nemo_rl.keys import DTENSOR
from meshwright.frameworks.nemo_rl.reading import Step, microbatch_of
from meshwright.frameworks.nemo_rl_dtensor.deciding import EXPERTS, KEYS, KIND, OVERLAP, REPLICAS
from meshwright.frameworks.settings import Given


def build(values: Values, step: Step, given: Given) -> Layout | None:
    """States are split over all ranks of a replica group; data parallelism is what is left of the trainer's devices."""
    tp, cp = (told(KEYS, values, knob) for knob in ("tensor_parallel", "context_parallel"))
    dp = data_parallel_of(values, step.world, tp * cp)
    size = microbatch_of(values, step, dp)
    count = microbatches_of(values, step.sequences, size, dp)
    replicas, experts = values.degree(REPLICAS), values.degree(EXPERTS)
    if experts > 1:
        values.refuse("nemo-rl.experts", "expert_parallel_size {experts}: grids of experts of Automodel's own models are not read "
                      "here", experts=experts)
    if dp is None or count is None or experts > 1:
        return None
    if dp % replicas:
        values.note(REPLICAS, "nemo-rl.replicate", "Data parallel size ({dp}) must be divisible by dp_replicate_size ({size}).",
                    dp=dp, size=replicas)
        return None
    group = dp * cp // replicas
    return Layout(
        tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel") and tp > 1, context_parallel=cp,
        context_kind=KIND if cp > 1 else "ring", data_parallel=dp, microbatch_sequences=size, num_microbatches=count,
        recompute=Full() if values.bool(f"{DTENSOR}.activation_checkpointing") else NoRecompute(), overlap=OVERLAP,
        optimizer_shards=group, gradient_shards=group, parameter_shards=group,
        offload=("optimizer",) if values.bool(f"{DTENSOR}.cpu_offload") else (),
    )

"""The sections of verl's Megatron engine as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.frameworks.chatlearn.stages import plain, split_of_ends, split_of_string
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.settings import Given
from meshwright.frameworks.verl.reading import Step, microbatch_of
from meshwright.frameworks.verl_megatron.deciding import keys

if TYPE_CHECKING:
    from meshwright.estimate.split import Split


def build(values: Values, step: Step, given: Given) -> Layout | None:
    """Degrees are keys, data parallelism is what is left of the GPUs."""
    engine = step.places.engine
    rows = keys(engine)
    tp, pp, cp, ep, chunks = (
        told(rows, values, knob)
        for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "virtual_stages")
    )
    etp = values.int(f"{engine}.expert_tensor_parallel_size") or (tp if ep > 1 else 1)
    dp = data_parallel_of(values, step.world, tp * pp * cp)
    size = microbatch_of(values, step, dp, cp)
    count = microbatches_of(values, step.sequences, size, dp)
    staged = _stages(values, engine, pp, chunks, given)
    if values.bool(f"{engine}.dynamic_context_parallel"):
        values.refuse("verl.dynamic-context", "with dynamic_context_parallel each sample has a context-parallel size of its own: "
                      "read as {cp} for all", cp=cp)
    if dp is None or count is None or staged is None:
        return None
    chunks, split = staged
    ranks, override = dp * cp, f"{step.places.optimizer}.override_optimizer_config"
    whole = values.bool(f"{engine}.use_megatron_fsdp")
    sharded = whole or values.bool(f"{engine}.use_distributed_optimizer", True)
    return Layout(
        tensor_parallel=tp, sequence_parallel=told(rows, values, "sequence_parallel") and tp > 1, context_parallel=cp,
        pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=ranks if sharded else 1, gradient_shards=ranks if whole else 1, parameter_shards=ranks if whole else 1,
        microbatch_sequences=size, num_microbatches=count, recompute=_recompute(values, engine),
        schedule="interleaved" if chunks > 1 else "1f1b", stage_layers=split,
        offload=("optimizer",) if values.bool(f"{override}.optimizer_cpu_offload") else (),
        overlap=Overlap(
            gradient_reduce=ranks > 1 and values.bool(f"{engine}.override_ddp_config.overlap_grad_reduce", whole),
            parameter_gather=False, tensor=False, point_to_point=True, expert=False,
        ),
    )


def _recompute(values: Values, engine: str) -> Recompute:
    """What is computed again: nothing, modules, all layers, or the first few of each chunk."""
    section = f"{engine}.override_transformer_config"
    granularity = values.text(f"{section}.recompute_granularity")
    if granularity == "selective":
        return Selective(modules=values.words(f"{section}.recompute_modules") or ("core_attn",))
    if granularity == "full":
        count = values.int(f"{section}.recompute_num_layers")
        return Full(layers=count) if values.text(f"{section}.recompute_method") == "block" else Full()
    return NoRecompute()


def _stages(values: Values, engine: str, pp: int, chunks: int, given: Given) -> tuple[int, Split | None] | None:
    """Chunks of a stage and layers by chunk and stage (None: even); None where that cannot be told."""
    section = f"{engine}.override_transformer_config"
    if pp == 1:
        return 1, None
    if text := values.text(f"{section}.pipeline_model_parallel_layout"):
        split = split_of_string(text, pp)
        if split is None:
            values.note(f"{section}.pipeline_model_parallel_layout", "verl.layout-string", "The length of "
                        "pipeline_model_parallel_layout must be divisible by pipeline_model_parallel_size ({text!r} for {stages} "
                        "stages)", text=text, stages=pp)
            return None
        return len(split), plain(split, given.model)
    first, last = (values.int(f"{section}.num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    ends = [values.bool(f"{section}.account_for_{part}_in_pipeline_split") for part in ("embedding", "loss")]
    if first is None and last is None and not any(ends):
        return chunks, None
    if given.model is None:
        values.refuse("import.layers", "the files name only the layers of the ends: give --model")
        return None
    split = split_of_ends(given.model.num_layers + sum(ends), pp, first, last)
    if split is None or chunks > 1:
        values.refuse("verl.ends", "{layers} layers do not fall on {stages} stages with {first} first and {last} last",
                      layers=given.model.num_layers, stages=pp, first=first, last=last)
        return None
    counts = list(split[0])
    counts[0] -= ends[0]
    counts[-1] -= ends[1]
    return chunks, plain((tuple(counts),), given.model)

"""ChatLearn's configuration as a layout of its policy trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN, Source
from meshwright.domain.layout import ContextKind, Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.frameworks.chatlearn.deciding import FSDP_OVERLAP, KEYS, TRAINER
from meshwright.frameworks.chatlearn.packing import padding_multiple, sequences_for, worst_tokens, written_for
from meshwright.frameworks.chatlearn.stages import plain, split_of_ends, split_of_string
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.training import Batch
    from meshwright.estimate.split import Split

KINDS: dict[str, ContextKind] = {"p2p": "ring", "a2a": "ulysses", "all_gather": "all-gather", "a2a+p2p": "hybrid"}
FIGURES = {
    "num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "num_query_groups": "key_value_heads",
    "kv_channels": "head_dim", "ffn_hidden_size": "ffn", "num_experts": "experts",
    "moe_router_topk": "experts_per_token",
        "moe_ffn_hidden_size": "expert_ffn", "moe_shared_expert_intermediate_size": "shared_ffn",
}
PROMPT_TOKENS, RESPONSE_TOKENS = 1024, 2048
"""Defaults of ``max_prompt_tokens_length`` and ``max_response_tokens_length``."""


def interpret(source: Source, given: Given, release: str) -> Reading:
    """What the trainer does: its degrees are keys, its data-parallel size what is left of ``num_gpu``."""
    from meshwright.frameworks.chatlearn import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    backend = values.text("runtime_args.train_backend")
    if backend not in {"megatron", "fsdp"}:
        values.refuse("chatlearn.backend", "not support train backend: {backend}", backend=backend or None)
    batch = values.int("runtime_args.train_global_batch_size") or given.global_batch_sequences
    sequence = sequence_tokens(values) or given.sequence_tokens
    world = _world(values, given)
    layout = None
    if backend in {"megatron", "fsdp"} and world:
        build = _megatron if backend == "megatron" else _fsdp
        layout = build(values, world, batch, sequence, given)
    figures = _figures(values)
    said = Said(
        devices=world, global_batch_sequences=batch, sequence_tokens=sequence,
        precision="bf16" if values.bool(f"{TRAINER}.bf16", True) or backend == "fsdp" else "fp32", optimizer="adamw", task="sft",
        figures=figures,
    )
    knobs = surface().knobs()
    broken = any(key in knobs for key in values.failed)
    return Reading(
        framework="chatlearn", version=release, source=source, said=said, layout=None if broken else layout,
        messages=tuple(values.messages),
    )


def _world(values: Values, given: Given) -> int | None:
    """GPUs of the trainer: as said, else as given beside the files (scripts compute them from the machine)."""
    unknown = values.source.value(f"{TRAINER}.num_gpu") is UNKNOWN
    said = None if unknown else values.int(f"{TRAINER}.num_gpu")
    return said or world_of(values, given)


def sequence_tokens(values: Values) -> int | None:
    """Tokens of a padded sequence: longest prompt and longest response of the trainer."""
    prompt = values.int(f"{TRAINER}.max_prompt_tokens_length", PROMPT_TOKENS)
    response = values.int(f"{TRAINER}.max_response_tokens_length", RESPONSE_TOKENS)
    return prompt + response if prompt and response else None


def _figures(values: Values) -> dict[str, object]:
    """The model's figures, where the YAML has them; ChatLearn takes them from the Hugging Face configuration."""
    found: dict[str, object] = {}
    for key, name in FIGURES.items():
        number = values.int(f"{TRAINER}.megatron_model_cfg.{key}")
        if number is not None:
            found[name] = number
    return found


def _microbatches(
    values: Values, samples: int | None, longest: int | None, dp: int | None, multiple: int, packs: Batch | None
) -> tuple[int, int | None]:
    """Sequences of a micro-batch and micro-batches of a replica: as said, or what the packing limit stands for.

    ``samples`` of a step, of at most ``longest`` tokens; a sequence is one of the packs, where they are known.
    """
    if not values.bool(f"{TRAINER}.packing"):
        size = values.degree("runtime_args.train_micro_batch_size")
        return size, microbatches_of(values, samples, size, dp)
    count, tokens = (packs.global_batch_sequences, packs.sequence_tokens) if packs else (samples, longest)
    key = f"{TRAINER}.max_token_in_packing"
    limit = values.int(key, 32768)
    if not values.has(key) and any(name.startswith(f"{key}.") for name in values.source.settings):
        values.note(key, "chatlearn.packing-section", "max_token_in_packing is a section: a number of tokens is expected")
    size = 1
    if limit and samples and longest and count and tokens and dp and samples % dp == 0 and count % dp == 0:
        written = written_for(limit, longest, samples // dp, multiple, tokens)
        size = written if written and count // dp % written == 0 else sequences_for(limit, tokens, count // dp)
        if size != written:
            values.refuse(
                "chatlearn.packed",
                "micro-batches are packed: up to {worst} tokens each, read as {size} whole sequences of {sequence}",
                worst=worst_tokens(limit, multiple), size=size, sequence=tokens,
            )
    return size, microbatches_of(values, count, size, dp)


def _fsdp(values: Values, world: int, batch: int | None, sequence: int | None, given: Given) -> Layout | None:
    """The FSDP back end: everything sharded over all GPUs, every layer recomputed, Ulysses within a sequence."""
    ranks = values.degree(f"{TRAINER}.ulysses_sequence_parallel_size")
    dp = data_parallel_of(values, world, ranks)
    size, count = _microbatches(values, batch, sequence, dp, padding_multiple(1, 1), given.packs)
    if dp is None or count is None:
        return None
    return Layout(
        context_parallel=ranks, context_kind="ulysses" if ranks > 1 else "ring", data_parallel=dp, microbatch_sequences=size,
        num_microbatches=count, recompute=Full(), overlap=FSDP_OVERLAP, optimizer_shards=world, gradient_shards=world,
        parameter_shards=world,
    )


def _megatron(values: Values, world: int, batch: int | None, sequence: int | None, given: Given) -> Layout | None:
    """The Megatron back end, by the arguments that reach it."""
    tp, pp, cp, ep = (
        told(KEYS, values, knob) for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    )
    etp = values.int(f"{TRAINER}.expert_tensor_parallel_size") or (tp if ep > 1 else 1)
    dp = data_parallel_of(values, world, tp * pp * cp)
    size, count = _microbatches(values, batch, sequence, dp, padding_multiple(tp, cp), given.packs)
    chunks, split = _stages(values, pp, given)
    if dp is None or count is None or chunks is None:
        return None
    ranks = dp * cp
    instances = values.degree(f"{TRAINER}.num_distributed_optimizer_instances")
    sharded = values.bool(f"{TRAINER}.use_distributed_optimizer")
    if ranks % instances:
        values.refuse("chatlearn.instances", "{ranks} ranks do not divide into {instances} optimizer instances",
                      ranks=ranks, instances=instances)
        return None
    cpu = values.bool(f"{TRAINER}.optimizer_cpu_offload")
    return Layout(
        tensor_parallel=tp, sequence_parallel=values.bool(f"{TRAINER}.sequence_parallel", True) and tp > 1, context_parallel=cp,
        context_kind=_kind(values) if cp > 1 else "ring", pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep,
        expert_tensor_parallel=etp, data_parallel=dp, optimizer_shards=ranks // instances if sharded else 1,
        microbatch_sequences=size, num_microbatches=count, recompute=_recompute(values),
        schedule="interleaved" if chunks > 1 else "1f1b", stage_layers=split, offload=("optimizer",) if cpu else (),
        overlap=Overlap(
            gradient_reduce=False, parameter_gather=False, tensor=values.bool(f"{TRAINER}.tp_comm_overlap") and tp > 1,
            point_to_point=chunks == 1 or values.bool(f"{TRAINER}.megatron_model_cfg.overlap_p2p_comm", True), expert=False,
        ),
    )


def _kind(values: Values) -> ContextKind:
    """The kind of context parallelism; Megatron takes a list, of which ChatLearn's own value can only be the first."""
    words = values.words(f"{TRAINER}.cp_comm_type")
    return KINDS.get(words[0], "ring") if words else "ring"


def _recompute(values: Values) -> Recompute:
    """What is computed again: nothing, modules, all layers, or the first few of each chunk."""
    granularity = values.text(f"{TRAINER}.recompute_granularity")
    if granularity == "selective":
        return Selective(modules=tuple(values.words(f"{TRAINER}.recompute_modules")) or ("core_attn",))
    if granularity == "full":
        method, count = values.text(f"{TRAINER}.recompute_method"), values.int(f"{TRAINER}.recompute_num_layers")
        if method not in {"block", "uniform"}:
            values.note(f"{TRAINER}.recompute_granularity", "chatlearn.recompute-method",
                        'Using recompute_granularity: full so recompute_method must be "block" or "uniform"')
        elif count is None:
            values.note(f"{TRAINER}.recompute_granularity", "chatlearn.recompute-layers", "When using recompute_granularity: full "
                        "recompute_num_layers must be between 1 and num_layers_per_pipeline_rank")
        return Full(layers=count or 0) if method == "block" else Full()
    return NoRecompute()


def _stages(values: Values, pp: int, given: Given) -> tuple[int | None, Split | None]:
    """Chunks of a stage and layers by chunk and stage (None: even); no chunks where that cannot be told."""
    first, last = (values.int(f"{TRAINER}.decoder_{end}_pipeline_num_layers") for end in ("first", "last"))
    text = values.text(f"{TRAINER}.pipeline_model_parallel_layout")
    chunks = values.degree(f"{TRAINER}.num_virtual_stages_per_pipeline_rank")
    split: Split | None = None
    if text:
        split = split_of_string(text, pp)
        if split is None:
            values.note(f"{TRAINER}.pipeline_model_parallel_layout", "chatlearn.layout-string",
                        "The length of pipeline_model_parallel_layout must be divisible by pipeline_model_parallel_size "
                        "({text!r} for {stages} stages)", text=text, stages=pp)
            return None, None
        chunks = len(split)
    elif first is not None or last is not None:
        layers = values.int(f"{TRAINER}.megatron_model_cfg.num_layers") or (given.model.num_layers if given.model else None)
        if layers is None:
            values.refuse("import.layers", "the files name only the layers of the ends: give --model")
            return None, None
        split = split_of_ends(layers, pp, first, last)
        if split is None or chunks > 1:
            values.refuse("chatlearn.ends", "{layers} layers do not fall on {stages} stages with {first} first and {last} last",
                          layers=layers, stages=pp, first=first, last=last)
            return None, None
    return (chunks if pp > 1 else 1), None if split is None or pp == 1 else plain(split, given.model)

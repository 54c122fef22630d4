"""A launch script of Megatron-LM as a layout: the inverse of ``decide``, on everything that its parser takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN, Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.errors import Message
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.megatron.figures import said_of
from meshwright.frameworks.megatron.flags import DEFAULT_VERSION, RELEASES, surface
from meshwright.frameworks.megatron.hybrid import letters_of_a_layer, main_pattern
from meshwright.frameworks.megatron.hybrid_stages import hybrid_stages, pattern_of
from meshwright.frameworks.megatron.layout_arguments import CONTEXT_TYPES, DEGREES, OVERLAPS
from meshwright.frameworks.megatron.stages import Stages, stages_of
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import AttentionKernel, ContextKind
    from meshwright.frameworks.surface import Surface

_KINDS: dict[str, ContextKind] = {
    **{words: kind for kind, words in CONTEXT_TYPES.items()},  # type: ignore[misc]
    "allgather": "all-gather",  # the help text's spelling, which the first step refuses (mistakes.py)
}
KERNELS: dict[str, AttentionKernel] = {"flash": "flash", "fused": "fused", "unfused": "math", "local": "math"}
_FSDP = ("--use-megatron-fsdp", "--use-custom-fsdp")
_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def detect(source: Source) -> str | None:
    """The release whose parser has all the flags of the files that any release has: the default, else the newest."""
    known = [key for key in source.settings if key in surface().keys]
    if not known:
        return None
    able = [release for release in RELEASES if all(surface().find(key, release) for key in known)]
    if not able or DEFAULT_VERSION in able:
        return DEFAULT_VERSION if able else None
    return able[-1]


def interpret(source: Source, given: Given, release: str) -> Reading:
    """The layout and the case of a launch script; what is silent has the default of the release."""
    source = settled(source, release, surface())
    if pair := _encoder_decoder(source):
        return Reading(framework="megatron", version=release, source=source, said=Said(devices=source.devices), messages=(pair,))
    values, figures = (Values(source=source, surface=surface(), release=release) for _ in range(2))
    remarks: list[Message] = list(source.remarks)
    layout = _layout(values, given, remarks)
    said = said_of(figures, given)
    others = [message for message in figures.messages if message not in values.messages]
    return Reading(
        framework="megatron", version=release, source=source, said=said, layout=None if values.messages else layout,
        messages=(*values.messages, *others, *remarks),
    )


_T5 = "pretrain_t5.py"


def _encoder_decoder(source: Source) -> Message | None:
    """The refusal of a model of two stacks, of which no layout, time or memory is known here."""
    flag, program = source.settings.get("--decoder-num-layers"), source.program.rpartition("/")[2]
    if flag is None and program != _T5:
        return None
    why = program if program == _T5 or flag is None else flag.key
    words = "{why} trains an encoder and a decoder: only models of one stack of layers are known here"
    return Message("megatron.encoder-decoder", words, {"why": why}, path=flag.place if flag else "")


def settled(source: Source, release: str, known: Surface) -> Source:
    """The source with values that are known although options that are not follow them: ``--bf16 $MORE`` is ``--bf16``."""
    from meshwright.documents.launch import LaunchDocument, flags

    settings = dict(source.settings)
    for document in source.documents:
        if not isinstance(document, LaunchDocument):
            continue
        for flag, words, _ in flags(document.shell.launch.arguments):
            setting, key = settings.get(flag), known.find(flag, release)
            if setting is None or key is None or setting.value is not UNKNOWN or setting.file != document.path:
                continue
            if key.kind == "switch":
                settings[flag] = replace(setting, value=True)
            elif key.kind not in {"ints", "floats", "strs"} and words and words[0].known:
                settings[flag] = replace(setting, value=words[0].text)
    return replace(source, settings=settings)


def _layout(values: Values, given: Given, remarks: list[Message]) -> Layout | None:
    """The layout, or None where something needed is not known; ``values`` and ``remarks`` say what."""
    tp, pp, cp = (told(DEGREES, values, knob) for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel"))
    moe = values.has("--num-experts")
    ep = told(DEGREES, values, "expert_parallel")
    etp = values.degree("--expert-tensor-parallel-size", tp if moe else 1)
    layers = values.int("--num-layers") or values.int("--encoder-num-layers") or (given.model.num_layers if given.model else None)
    text = pattern_of(values)
    layers = layers if text is None else len(main_pattern(text))
    stages = stages_of(values, pp, layers) if text is None else hybrid_stages(values, pp, text, given.model)
    dp = data_parallel_of(values, world_of(values, given), tp * pp * cp)
    mb = _microbatch(values)
    batch = values.int("--global-batch-size") or given.global_batch_sequences or (mb * dp if dp else None)
    if values.has("--rampup-batch-size") or values.has("--step-batch-size-schedule"):
        remarks.append(Message("megatron.rampup", "the global batch grows during the run: the layout is that of its last part", {}))
    microbatches = microbatches_of(values, batch, mb, dp)
    shards = _shards(values, dp, cp, remarks)
    if stages is None or dp is None or microbatches is None or mb is None or shards is None:
        return None
    blocks = (letters_of_a_layer(given.model) or 1) if given.model and text is not None else 1
    return Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1 and told(DEGREES, values, "sequence_parallel"), context_parallel=cp,
        context_kind=_context_kind(values, cp), pipeline_parallel=pp, virtual_stages=stages.virtual,
        expert_parallel=ep, expert_tensor_parallel=etp if moe else 1, data_parallel=dp, microbatch_sequences=mb,
        num_microbatches=microbatches,
        recompute=_recompute(values, stages, layers // blocks if layers else None, pp, blocks, remarks),
        schedule="interleaved" if stages.virtual > 1 else "1f1b", stage_layers=stages.split, offload=_offload(values, remarks),
        attention=_attention(values), compiled=None, overlap=_overlap(values, stages, tp, ep, dp * cp, shards), **shards,
    )


def _attention(values: Values) -> AttentionKernel | None:
    """The attention kernel; None where Transformer Engine chooses. ``local`` is Megatron-LM's own score matrix."""
    return KERNELS.get(values.text("--attention-backend", "auto"))


def _microbatch(values: Values) -> int:
    """The micro-batch, which has no default."""
    if not values.has("--micro-batch-size"):
        values.refuse("megatron.micro-batch", "--micro-batch-size is missing, and Megatron-LM has no default for it")
    return int(told(DEGREES, values, "microbatch_sequences"))


def _context_kind(values: Values, cp: int) -> ContextKind:
    """The kind of context parallelism. One word for all layers, or one for each; kinds that are mixed are refused."""
    words = values.words("--cp-comm-type") or ("p2p",)
    if cp == 1:
        return "ring"
    if len(set(words)) > 1:
        values.note("--cp-comm-type", "megatron.context-mixed", "--cp-comm-type gives layers different kinds: {kinds}",
                    kinds=", ".join(sorted(set(words))))
    if words[0] not in _KINDS:
        values.note("--cp-comm-type", "megatron.context-type", "--cp-comm-type is {kind}: one of {known} is expected",
                    kind=words[0], known=", ".join(CONTEXT_TYPES.values()))
    return _KINDS.get(words[0], "ring")


def _shards(values: Values, dp: int | None, cp: int, remarks: list[Message]) -> dict[str, int] | None:
    """Shard groups of the distributed optimizer, Megatron-FSDP or torch's FSDP2."""
    if dp is None:
        return None
    ranks = dp * cp
    instances = values.degree("--num-distributed-optimizer-instances")
    if ranks % instances:
        values.refuse(
            "megatron.instances", "distributed optimizer instances ({instances}) do not divide the {ranks} ranks of data and "
            "context parallelism", instances=instances, ranks=ranks,
        )
        return None
    inner, stage = ranks // instances, _zero_stage(values)
    outer = values.text("--outer-dp-sharding-strategy", "no_shard") == "optim" and stage == 3
    if values.bool("--enable-full-sharding-in-hsdp"):
        remarks.append(Message("megatron.full-hsdp", "--enable-full-sharding-in-hsdp shards parameters over all ranks", {}))
        inner = ranks
    return {
        "optimizer_shards": (ranks if outer else inner) if stage >= 1 else 1,
        "gradient_shards": inner if stage >= 2 else 1,
        "parameter_shards": inner if stage >= 3 else 1,
    }


def _zero_stage(values: Values) -> int:
    """The ZeRO stage that the flags come to."""
    if values.bool("--use-torch-fsdp2"):
        return 2 if values.bool("--torch-fsdp2-no-reshard-after-forward") else 3
    plain = int(values.bool("--use-distributed-optimizer"))
    if any(values.bool(flag) for flag in _FSDP):
        return max(plain, _STRATEGIES.get(values.text("--data-parallel-sharding-strategy", "no_shard"), 0))
    return plain


def _recompute(
    values: Values, stages: Stages, layers: int | None, pp: int, blocks: int, remarks: list[Message]
) -> Recompute:
    """What is recomputed; ``--recompute-activations`` is selective. ``blocks``: Megatron-LM's layers of one layer of the model."""
    granularity = values.text("--recompute-granularity") or ("selective" if values.bool("--recompute-activations") else "")
    if values.bool("--recompute-activations"):
        granularity = "selective"  # it wins
    if granularity == "selective":
        modules = values.words("--recompute-modules")
        return Selective(modules=modules) if modules else Selective()
    if granularity != "full":
        return NoRecompute()
    method, count = values.text("--recompute-method"), values.int("--recompute-num-layers")
    if method == "block":
        return _block(stages, None if count is None else -(-count // blocks), layers, pp)
    if method != "uniform":
        values.refuse(
            "megatron.recompute-method", 'Using recompute_granularity: full so recompute_method must be "block" or "uniform"',
        )
    if count is not None and count > 1:
        remarks.append(Message("megatron.uniform", "uniform recomputation over {count} layers at a time keeps fewer inputs than is "
                               "counted here", {"count": count}, path=_place(values, "--recompute-num-layers")))
    return Full()


def _block(stages: Stages, count: int | None, layers: int | None, pp: int) -> Recompute:
    """The first layers of each chunk: all of them where the count reaches the largest chunk."""
    if not count:
        return NoRecompute()
    largest = max(map(max, stages.split)) if stages.split else layers // (pp * stages.virtual) if layers else None
    return Full() if largest is not None and count > largest else Full(layers=count)


def _overlap(values: Values, stages: Stages, tp: int, ep: int, ranks: int, shards: dict[str, int]) -> Overlap:
    """Communication beside compute, where there is any to hide."""
    sharded = max(shards.values()) > 1
    return Overlap(
        gradient_reduce=told(OVERLAPS, values, "overlap.gradient_reduce") and ranks > 1,
        parameter_gather=told(OVERLAPS, values, "overlap.parameter_gather") and sharded and ranks > 1,
        tensor=told(OVERLAPS, values, "overlap.tensor") and tp > 1,
        point_to_point=stages.virtual == 1 or not values.bool("--no-overlap-p2p-communication"),
        expert=told(OVERLAPS, values, "overlap.expert") and ep > 1,
    )


def _offload(values: Values, remarks: list[Message]) -> tuple[str, ...]:
    """Whether the optimizer state is in host memory."""
    if not values.bool("--optimizer-cpu-offload"):
        return ()
    share = values.number("--optimizer-offload-fraction", 1.0)
    if share is not None and share < 1:
        remarks.append(Message("megatron.offload-share", "{share:.0%} of the optimizer state is in host memory; all of it is "
                                                         "counted "
                               "so", {"share": share}, path=_place(values, "--optimizer-offload-fraction")))
    return ("optimizer",) if share else ()


def _place(values: Values, key: str) -> str:
    """Where a flag stands."""
    setting = values.source.settings.get(key)
    return setting.place if setting else ""

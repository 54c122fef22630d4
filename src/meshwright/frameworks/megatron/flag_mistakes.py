"""Flags that contradict each other, do nothing, or do something else than their names say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron.asking import at, flags, grid_of, has, is_complete, minor
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

CHECKS: list[Check] = []
_rule = partial(file_rule, CHECKS, source="Megatron-LM megatron/training/arguments.py")
_config_rule = partial(file_rule, CHECKS, source="Megatron-LM megatron/core/transformer/transformer_config.py")
_schedule_rule = partial(file_rule, CHECKS, source="Megatron-LM megatron/core/pipeline_parallel/schedules.py")
_REQUIRED = ("--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings", "--micro-batch-size")


@_rule("megatron.missing", "argument is None: the parser has no default for {flags}")
def _missing(reading: Reading, case: Case | None) -> Iterator[Values]:
    if not is_complete(reading):
        return
    alternatives = {"--num-layers": "--encoder-num-layers"}
    absent = [flag for flag in _REQUIRED if not any(has(reading, each) for each in (flag, alternatives.get(flag, flag)))]
    if absent:
        yield {"flags": ", ".join(absent), "expected": " ".join(absent)}


@_rule("megatron.two-precisions", "--fp16 and --bf16 exclude each other: the parser asserts that only one is given")
def _two_precisions(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--fp16") and has(reading, "--bf16"):
        yield at(reading, "--fp16", expected="one of --fp16 and --bf16")


@_rule("megatron.fp8-and-fp4", "--fp4-format and --fp8-format cannot be used simultaneously. Please choose one.")
def _two_formats(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--fp4-format") and has(reading, "--fp8-format"):
        yield at(reading, "--fp4-format", expected="one of --fp4-format and --fp8-format")


@_rule("megatron.fp32", "neither --bf16 nor --fp16 is given: everything is computed and kept in FP32", severity="warning")
def _fp32(reading: Reading, case: Case | None) -> Iterator[Values]:
    if is_complete(reading) and not has(reading, "--fp16") and not has(reading, "--bf16"):
        yield {"expected": "--bf16"}


@_rule("megatron.sequence-parallel-alone",
       "Disabling sequence parallelism because tensor model parallelism is disabled: --sequence-parallel does nothing at tp 1",
       severity="warning")
def _sequence_parallel_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--sequence-parallel") and grid_of(reading).tp == 1:
        yield at(reading, "--sequence-parallel", expected="no --sequence-parallel, or tensor parallelism")


@_rule("megatron.moe-without-sequence-parallel",
       "When using expert parallelism and tensor parallelism, sequence parallelism must be used: the parser warns only, the "
       "experts get each token {tp} times", severity="warning")
def _moe_without_sequence_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp = grid_of(reading).tp
    if flags(reading).degree("--expert-model-parallel-size") > 1 and tp > 1 and not has(reading, "--sequence-parallel"):
        yield at(reading, "--expert-model-parallel-size", tp=tp, expected="--sequence-parallel")


@_rule("megatron.expert-tensor-default",
       "--expert-tensor-parallel-size is not given, so it is the tensor-parallel size {tp}: experts are cut {tp} ways and the "
       "expert grid needs {size} ranks", severity="warning")
def _expert_tensor_default(reading: Reading, case: Case | None) -> Iterator[Values]:
    grid, values = grid_of(reading), flags(reading)
    if has(reading, "--num-experts") and grid.tp > 1 and is_complete(reading) and not has(reading, "--expert-tensor-parallel-size"):
        ep = values.degree("--expert-model-parallel-size")
        yield at(reading, "--num-experts", tp=grid.tp, size=grid.tp * ep * grid.pp, value=None,
                 expected="--expert-tensor-parallel-size 1")


@_rule(
    "megatron.only-some-layers",
    "{flag} {count} without pipeline stages trains {count} layers of {layers} and reports the throughput of all (issue 1778)",
)
def _only_some_layers(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = flags(reading)
    layers = values.int("--num-layers")
    for flag in ("--decoder-last-pipeline-num-layers", "--decoder-first-pipeline-num-layers"):
        count = values.int(flag)
        if grid_of(reading).pp == 1 and count is not None and count != layers:
            yield at(reading, flag, flag=flag, count=count, layers=layers, expected=f"no {flag}")


@_rule(
    "megatron.query-groups-alone",
    "--num-query-groups {groups} is not read without --group-query-attention: every head gets keys and values of its own",
)
def _query_groups_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    groups = flags(reading).int("--num-query-groups")
    # From 0.18 on the count alone is enough.
    if groups is not None and minor(reading) < 18 and not has(reading, "--group-query-attention"):
        yield at(reading, "--num-query-groups", groups=groups, expected="--group-query-attention")


@_rule("megatron.latent-groups", "Group query attention is mutually exclusive with multi latent attention.")
def _latent_groups(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--multi-latent-attention") and has(reading, "--group-query-attention"):
        yield at(reading, "--group-query-attention", expected="no --group-query-attention")


@_rule("megatron.positions-short", "max_position_embeddings ({rows}) must be greater than or equal to seq_length ({sequence}).")
def _positions_short(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = flags(reading)
    rows, sequence = values.int("--max-position-embeddings"), values.int("--seq-length")
    if rows is not None and sequence is not None and rows < sequence:
        yield at(reading, "--max-position-embeddings", rows=rows, sequence=sequence, expected=sequence)


# Flags without effect, or with another one.


@_rule(
    "megatron.flash-attention",
    "--use-flash-attn has no effect: {why}; --attention-backend flash is what chooses FlashAttention",
    severity="warning",
)
def _flash_attention(reading: Reading, case: Case | None) -> Iterator[Values]:
    if not has(reading, "--use-flash-attn") or has(reading, "--use-legacy-models"):
        return
    read = "only the legacy models read it" if minor(reading) < 19 else "nothing reads it from core 0.19 on"
    yield at(reading, "--use-flash-attn", why=read, expected="--attention-backend flash")


@_rule("megatron.no-effect", "{flag} is accepted and does nothing: {instead}", severity="advice")
def _no_effect(reading: Reading, case: Case | None) -> Iterator[Values]:
    reasons = {
        "--use-mcore-models": "the models of Megatron-Core are the only ones, or the default",
        "--use-dist-ckpt": "--ckpt-format decides, torch_dist by default",
        "--no-async-tensor-model-parallel-allreduce": "the option is deprecated and ignored",
        "--disable-async-tensor-model-parallel-allreduce": "the option is deprecated and ignored",
    }
    for flag, instead in reasons.items():
        if has(reading, flag) and not (flag == "--no-async-tensor-model-parallel-allreduce" and minor(reading) < 12):
            yield at(reading, flag, flag=flag, instead=instead, expected=f"no {flag}")


@_rule("megatron.checkpoint-activations",
       "--checkpoint-activations is no longer valid, use --recompute-activations, or, for more control, --recompute-granularity "
       "and --recompute-method.")
def _checkpoint_activations(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--checkpoint-activations"):
        yield at(reading, "--checkpoint-activations", expected="--recompute-granularity")


@_rule("megatron.recompute-activations",
       "--recompute-activations recomputes the attention core alone (granularity selective){over}; whole layers need "
       "--recompute-granularity full, --recompute-method and --recompute-num-layers", severity="advice")
def _recompute_activations(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--recompute-activations"):
        full = flags(reading).text("--recompute-granularity") == "full"
        yield at(reading, "--recompute-activations", over=", whatever --recompute-granularity says" if full else "",
                 expected="--recompute-granularity selective")


@_rule("megatron.selective-method", "recompute method is not yet supported for selective recomputing granularity")
def _selective_method(reading: Reading, case: Case | None) -> Iterator[Values]:
    selective = flags(reading).text("--recompute-granularity") == "selective" or has(reading, "--recompute-activations")
    if selective and has(reading, "--recompute-method"):
        yield at(reading, "--recompute-method", expected="no --recompute-method")


@_config_rule("megatron.selective-count", "When using recompute_granularity: selective recompute_num_layers must be None.")
def _selective_count(reading: Reading, case: Case | None) -> Iterator[Values]:
    selective = flags(reading).text("--recompute-granularity") == "selective" or has(reading, "--recompute-activations")
    if selective and has(reading, "--recompute-num-layers"):
        yield at(reading, "--recompute-num-layers", expected="no --recompute-num-layers")


@_config_rule(
    "megatron.full-count",
    "When using recompute_granularity: full recompute_num_layers must be between 1 and num_layers_per_pipeline_rank",
)
def _full_count(reading: Reading, case: Case | None) -> Iterator[Values]:
    full = flags(reading).text("--recompute-granularity") == "full" and not has(reading, "--recompute-activations")
    if full and not has(reading, "--recompute-num-layers"):
        yield at(reading, "--recompute-granularity", expected="--recompute-num-layers 1")


@_rule("megatron.recompute-off", "{flag} does nothing without --recompute-granularity: nothing is recomputed", severity="warning")
def _recompute_off(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--recompute-granularity") or has(reading, "--recompute-activations"):
        return
    for flag in ("--recompute-method", "--recompute-modules"):
        if has(reading, flag):
            yield at(reading, flag, flag=flag, expected="--recompute-granularity")


# Context, tensor and expert parallelism.


@_rule(
    "megatron.context-allgather",
    "--cp-comm-type allgather, as the help text spells it, is refused in the first step: write all_gather",
)
def _context_allgather(reading: Reading, case: Case | None) -> Iterator[Values]:
    if "allgather" in flags(reading).words("--cp-comm-type"):
        yield at(reading, "--cp-comm-type", expected="all_gather")


@_rule("megatron.context-sizes", "--hierarchical-context-parallel-sizes must be set when a2a+p2p is used in cp comm")
def _context_sizes(reading: Reading, case: Case | None) -> Iterator[Values]:
    hybrid = "a2a+p2p" in flags(reading).words("--cp-comm-type")
    if hybrid and grid_of(reading).cp > 1 and not has(reading, "--hierarchical-context-parallel-sizes"):
        yield at(reading, "--cp-comm-type", expected="--hierarchical-context-parallel-sizes")


@_rule(
    "megatron.context-product", "--hierarchical-context-parallel-sizes multiply to {product}, not to --context-parallel-size {cp}"
)
def _context_product(reading: Reading, case: Case | None) -> Iterator[Values]:
    sizes = flags(reading).get("--hierarchical-context-parallel-sizes")
    if not isinstance(sizes, tuple) or not sizes:
        return
    product, cp = 1, grid_of(reading).cp
    for size in sizes:
        product *= int(size)
    if product != cp:
        yield at(reading, "--hierarchical-context-parallel-sizes", product=product, cp=cp, expected=cp)


@_rule(
    "megatron.tensor-overlap-alone",
    "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is enabled",
)
def _tensor_overlap_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--tp-comm-overlap") and grid_of(reading).tp == 1:  # with tp it is a limit of the layout
        yield at(reading, "--tp-comm-overlap", expected="no --tp-comm-overlap")


@_config_rule("megatron.expert-overlap-alone", "overlap_moe_expert_parallel_comm is only supported with expert model parallelism")
def _expert_overlap_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = "--overlap-moe-expert-parallel-comm"
    if has(reading, flag) and flags(reading).degree("--expert-model-parallel-size") == 1:
        yield at(reading, flag, expected=f"no {flag}")


@_config_rule(
    "megatron.expert-overlap-dispatcher",
    "overlap_moe_expert_parallel_comm is supported with alltoall/flex token dispatcher, not {dispatcher}",
)
def _expert_overlap_dispatcher(reading: Reading, case: Case | None) -> Iterator[Values]:
    dispatcher = flags(reading).text("--moe-token-dispatcher-type", "allgather")
    if has(reading, "--overlap-moe-expert-parallel-comm") and dispatcher not in {"alltoall", "flex"}:
        yield at(
            reading, "--overlap-moe-expert-parallel-comm", dispatcher=dispatcher, expected="--moe-token-dispatcher-type alltoall"
        )


@_config_rule("megatron.expert-overlap-shared", "disable moe_shared_expert_overlap when enabling overlap_moe_expert_parallel_comm")
def _expert_overlap_shared(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--overlap-moe-expert-parallel-comm") and has(reading, "--moe-shared-expert-overlap"):
        yield at(reading, "--moe-shared-expert-overlap", expected="no --moe-shared-expert-overlap")


@_rule("megatron.allgather-dispatcher",
       "tokens go to their experts by all-gather, the default: with expert parallelism over {ep} ranks alltoall moves less",
       severity="advice")
def _allgather_dispatcher(reading: Reading, case: Case | None) -> Iterator[Values]:
    ep = flags(reading).degree("--expert-model-parallel-size")
    if ep > 1 and flags(reading).text("--moe-token-dispatcher-type", "allgather") == "allgather":
        yield at(reading, "--expert-model-parallel-size", ep=ep, expected="--moe-token-dispatcher-type alltoall")


@_rule(
    "megatron.batch-default",
    "--global-batch-size is not given: it is micro-batch size x data-parallel size, without accumulation",
    severity="advice",
)
def _batch_default(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--micro-batch-size") and is_complete(reading) and not has(reading, "--global-batch-size"):
        yield at(reading, "--micro-batch-size", expected="--global-batch-size")


@_schedule_rule(
    "megatron.group-size",
    "The number of contiguous micro-batches in a virtual pipeline stage should range in [PP={pp} , M={microbatches}]: {group}",
)
def _group_size(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = "--microbatch-group-size-per-virtual-pipeline-stage"
    group, layout = flags(reading).int(flag), reading.layout
    if group is None or layout is None or layout.virtual_stages == 1:
        return
    pp, microbatches = layout.pipeline_parallel, layout.num_microbatches
    if not pp <= group <= microbatches:
        yield at(reading, flag, pp=pp, microbatches=microbatches, group=group, expected=pp)

"""Flags that contradict each other, do nothing, or do something else than their names say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron.asking import ARGUMENTS, at, flags, grid_of, has, is_complete, minor
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_CONFIG = "Megatron-LM megatron/core/transformer/transformer_config.py"
_REQUIRED = ("--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings", "--micro-batch-size")
_EXPERTS, _OVERLAP = "--expert-model-parallel-size", "--overlap-moe-expert-parallel-comm"
_DEAD = (
    ("--use-mcore-models", "the models of Megatron-Core are the only ones, or the default", 0),
    ("--use-dist-ckpt", "--ckpt-format decides, torch_dist by default", 0),
    ("--no-async-tensor-model-parallel-allreduce", "the option is deprecated and ignored", 12),
    ("--disable-async-tensor-model-parallel-allreduce", "the option is deprecated and ignored", 0),
)
"""Flag, what is instead of it, and the first minor version in which it does nothing."""


def _missing(reading: Reading, case: Case | None) -> Iterator[Values]:
    if not is_complete(reading):
        return
    alternatives = {"--num-layers": "--encoder-num-layers"}
    absent = [flag for flag in _REQUIRED if not any(has(reading, each) for each in (flag, alternatives.get(flag, flag)))]
    if absent:
        yield {"flags": ", ".join(absent), "expected": " ".join(absent)}


def _cut_experts(reading: Reading) -> Values | None:
    grid, ep = grid_of(reading), flags(reading).degree(_EXPERTS)
    return values_if(grid.tp > 1 and is_complete(reading), tp=grid.tp, size=grid.tp * ep * grid.pp, value=None)


def _repeated_tokens(reading: Reading) -> Values | None:
    tp = grid_of(reading).tp
    return values_if(flags(reading).degree(_EXPERTS) > 1 and tp > 1, tp=tp)


def _only_some_layers(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = flags(reading)
    layers = values.int("--num-layers")
    for flag in ("--decoder-last-pipeline-num-layers", "--decoder-first-pipeline-num-layers"):
        count = values.int(flag)
        if grid_of(reading).pp == 1 and count is not None and count != layers:
            yield at(reading, flag, flag=flag, count=count, layers=layers, expected=f"no {flag}")


def _unread_groups(reading: Reading) -> Values | None:
    groups = flags(reading).int("--num-query-groups")  # from 0.18 on the count alone is enough
    return values_if(groups is not None and minor(reading) < 18, groups=groups)


def _short_positions(reading: Reading) -> Values | None:
    rows, sequence = flags(reading).int("--max-position-embeddings"), flags(reading).int("--seq-length")
    return values_if(rows is not None and sequence is not None and rows < sequence, rows=rows, sequence=sequence, expected=sequence)


def _who_reads_flash(reading: Reading) -> Values:
    read = "only the legacy models read it" if minor(reading) < 19 else "nothing reads it from core 0.19 on"
    return {"why": read}


def _from(first: int) -> Callable[[Reading], bool]:
    """Whether the files are for a minor version or a later one."""
    return lambda reading: minor(reading) >= first


def _is_selective(reading: Reading) -> bool:
    return flags(reading).text("--recompute-granularity") == "selective" or has(reading, "--recompute-activations")


def _is_full(reading: Reading) -> bool:
    return flags(reading).text("--recompute-granularity") == "full"


def _context_product(reading: Reading) -> Values | None:
    sizes, cp = flags(reading).get("--hierarchical-context-parallel-sizes"), grid_of(reading).cp
    product = prod(int(size) for size in sizes) if isinstance(sizes, tuple) and sizes else cp
    return values_if(product != cp, product=product, cp=cp, expected=cp)


def _dispatcher(reading: Reading) -> str:
    return flags(reading).text("--moe-token-dispatcher-type", "allgather")


def _gathered_experts(reading: Reading) -> Values | None:
    ep = flags(reading).degree(_EXPERTS)
    return values_if(ep > 1 and _dispatcher(reading) == "allgather", ep=ep)


def _group_size(reading: Reading) -> Values | None:
    group, layout = flags(reading).int("--microbatch-group-size-per-virtual-pipeline-stage"), reading.layout
    if group is None or layout is None or layout.virtual_stages == 1:
        return None
    pp, microbatches = layout.pipeline_parallel, layout.num_microbatches
    return values_if(not pp <= group <= microbatches, pp=pp, microbatches=microbatches, group=group, expected=pp)


CHECKS = checks("megatron", (
    Mistake("missing", "argument is None: the parser has no default for {flags}", _missing),
    Mistake("two-precisions", "--fp16 and --bf16 exclude each other: the parser asserts that only one is given",
            At("--fp16", "one of --fp16 and --bf16", beside=("--bf16",))),
    Mistake("fp8-and-fp4", "--fp4-format and --fp8-format cannot be used simultaneously. Please choose one.",
            At("--fp4-format", "one of --fp4-format and --fp8-format", beside=("--fp8-format",))),
    Mistake("fp32", "neither --bf16 nor --fp16 is given: everything is computed and kept in FP32",
            At("", "--bf16", without=("--fp16", "--bf16"), when=is_complete), "warning"),
    Mistake("sequence-parallel-alone", "Disabling sequence parallelism because tensor model parallelism is disabled: "
            "--sequence-parallel does nothing at tp 1",
            At("--sequence-parallel", "no --sequence-parallel, or tensor parallelism",
               when=lambda reading: grid_of(reading).tp == 1), "warning"),
    Mistake("moe-without-sequence-parallel", "When using expert parallelism and tensor parallelism, sequence parallelism must be "
            "used: the parser warns only, the experts get each token {tp} times",
            At(_EXPERTS, "--sequence-parallel", without=("--sequence-parallel",), when=_repeated_tokens), "warning"),
    Mistake("expert-tensor-default", "--expert-tensor-parallel-size is not given, so it is the tensor-parallel size {tp}: experts "
            "are cut {tp} ways and the expert grid needs {size} ranks",
            At("--num-experts", "--expert-tensor-parallel-size 1", without=("--expert-tensor-parallel-size",), when=_cut_experts),
            "warning"),
    Mistake("only-some-layers", "{flag} {count} without pipeline stages trains {count} layers of {layers} and reports the "
            "throughput of all (issue 1778)", _only_some_layers),
    Mistake("query-groups-alone", "--num-query-groups {groups} is not read without --group-query-attention: every head gets keys "
            "and values of its own",
            At("--num-query-groups", "--group-query-attention", without=("--group-query-attention",), when=_unread_groups)),
    Mistake("latent-groups", "Group query attention is mutually exclusive with multi latent attention.",
            At("--group-query-attention", "no --group-query-attention", beside=("--multi-latent-attention",))),
    Mistake("positions-short", "max_position_embeddings ({rows}) must be greater than or equal to seq_length ({sequence}).",
            At("--max-position-embeddings", when=_short_positions)),
    # Flags without effect, or with another one.
    Mistake("flash-attention", "--use-flash-attn has no effect: {why}; --attention-backend flash is what chooses FlashAttention",
            At("--use-flash-attn", "--attention-backend flash", without=("--use-legacy-models",), when=_who_reads_flash),
            "warning"),
    Mistake("no-effect", "{flag} is accepted and does nothing: {instead}",
            tuple(At(flag, f"no {flag}", when=_from(since), values={"instead": instead}) for flag, instead, since in _DEAD),
            "advice"),
    Mistake("checkpoint-activations", "--checkpoint-activations is no longer valid, use --recompute-activations, or, for more "
            "control, --recompute-granularity and --recompute-method.", At("--checkpoint-activations", "--recompute-granularity")),
    Mistake("recompute-activations", "--recompute-activations recomputes the attention core alone (granularity selective){over}; "
            "whole layers need --recompute-granularity full, --recompute-method and --recompute-num-layers",
            At("--recompute-activations", "--recompute-granularity selective",
               when=lambda reading: {"over": ", whatever --recompute-granularity says" if _is_full(reading) else ""}), "advice"),
    Mistake("selective-method", "recompute method is not yet supported for selective recomputing granularity",
            At("--recompute-method", "no --recompute-method", when=_is_selective)),
    Mistake("selective-count", "When using recompute_granularity: selective recompute_num_layers must be None.",
            At("--recompute-num-layers", "no --recompute-num-layers", when=_is_selective), source=_CONFIG),
    Mistake("full-count", "When using recompute_granularity: full recompute_num_layers must be between 1 and "
            "num_layers_per_pipeline_rank",
            At("--recompute-granularity", "--recompute-num-layers 1", without=("--recompute-activations", "--recompute-num-layers"),
               when=_is_full), source=_CONFIG),
    Mistake("recompute-off", "{flag} does nothing without --recompute-granularity: nothing is recomputed",
            tuple(At(flag, "--recompute-granularity", without=("--recompute-granularity", "--recompute-activations"))
                  for flag in ("--recompute-method", "--recompute-modules")), "warning"),
    # Context, tensor and expert parallelism.
    Mistake("context-allgather", "--cp-comm-type allgather, as the help text spells it, is refused in the first step: write "
            "all_gather",
            At("--cp-comm-type", "all_gather", when=lambda reading: "allgather" in flags(reading).words("--cp-comm-type"))),
    Mistake("context-sizes", "--hierarchical-context-parallel-sizes must be set when a2a+p2p is used in cp comm",
            At("--cp-comm-type", "--hierarchical-context-parallel-sizes", without=("--hierarchical-context-parallel-sizes",),
               when=lambda reading: "a2a+p2p" in flags(reading).words("--cp-comm-type") and grid_of(reading).cp > 1)),
    Mistake("context-product", "--hierarchical-context-parallel-sizes multiply to {product}, not to --context-parallel-size {cp}",
            At("--hierarchical-context-parallel-sizes", when=_context_product)),
    # With tensor parallelism it is a limit of the layout.
    Mistake("tensor-overlap-alone", "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is "
            "enabled", At("--tp-comm-overlap", "no --tp-comm-overlap", when=lambda reading: grid_of(reading).tp == 1)),
    Mistake("expert-overlap-alone", "overlap_moe_expert_parallel_comm is only supported with expert model parallelism",
            At(_OVERLAP, f"no {_OVERLAP}", when=lambda reading: flags(reading).degree(_EXPERTS) == 1), source=_CONFIG),
    Mistake("expert-overlap-dispatcher", "overlap_moe_expert_parallel_comm is supported with alltoall/flex token dispatcher, not "
            "{dispatcher}",
            At(_OVERLAP, "--moe-token-dispatcher-type alltoall",
               when=lambda reading: values_if(_dispatcher(reading) not in {"alltoall", "flex"}, dispatcher=_dispatcher(reading))),
            source=_CONFIG),
    Mistake("expert-overlap-shared", "disable moe_shared_expert_overlap when enabling overlap_moe_expert_parallel_comm",
            At("--moe-shared-expert-overlap", "no --moe-shared-expert-overlap", beside=(_OVERLAP,)), source=_CONFIG),
    Mistake("allgather-dispatcher", "tokens go to their experts by all-gather, the default: with expert parallelism over {ep} "
            "ranks alltoall moves less", At(_EXPERTS, "--moe-token-dispatcher-type alltoall", when=_gathered_experts), "advice"),
    Mistake("batch-default", "--global-batch-size is not given: it is micro-batch size x data-parallel size, without accumulation",
            At("--micro-batch-size", "--global-batch-size", without=("--global-batch-size",), when=is_complete), "advice"),
    Mistake("group-size", "The number of contiguous micro-batches in a virtual pipeline stage should range in [PP={pp} , "
            "M={microbatches}]: {group}", At("--microbatch-group-size-per-virtual-pipeline-stage", when=_group_size),
            source="Megatron-LM megatron/core/pipeline_parallel/schedules.py"),
), given=has, source=ARGUMENTS)

"""Megatron-LM's flags by version, and a list of arguments that knows which of them its version has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote

from meshwright.errors import fault

MAIN = 20
"""Minor version of the development branch: later than every release."""
OLDEST = 12
DEFAULT_VERSION = "0.16"

_ALWAYS = """
--num-layers --hidden-size --ffn-hidden-size --num-attention-heads --group-query-attention --num-query-groups
--kv-channels --seq-length --max-position-embeddings --position-embedding-type --rotary-base --rotary-percent
--no-rope-fusion --normalization --norm-epsilon --swiglu --squared-relu --disable-bias-linear --add-qkv-bias --no-bias-gelu-fusion
--no-bias-dropout-fusion --qk-layernorm --untie-embeddings-and-output-weights --make-vocab-size-divisible-by
--vocab-size --attention-dropout --hidden-dropout --init-method-std --multi-latent-attention --q-lora-rank
--kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim --rotary-scaling-factor --mscale --mscale-all-dim
--num-experts --moe-layer-freq --moe-ffn-hidden-size --moe-router-topk --moe-shared-expert-intermediate-size
--moe-router-num-groups --moe-router-pre-softmax --moe-router-group-topk
--moe-router-topk-scaling-factor --moe-router-score-function --moe-router-enable-expert-bias
--moe-router-load-balancing-type --moe-aux-loss-coeff --moe-grouped-gemm --moe-permute-fusion
--moe-token-dispatcher-type --tensor-model-parallel-size --pipeline-model-parallel-size --context-parallel-size
--cp-comm-type --hierarchical-context-parallel-sizes --expert-model-parallel-size --expert-tensor-parallel-size
--sequence-parallel --num-virtual-stages-per-pipeline-rank --decoder-first-pipeline-num-layers
--decoder-last-pipeline-num-layers --microbatch-group-size-per-virtual-pipeline-stage --no-overlap-p2p-communication
--micro-batch-size --global-batch-size --recompute-granularity --recompute-method --recompute-num-layers
--use-distributed-optimizer --num-distributed-optimizer-instances --ckpt-format --no-gradient-accumulation-fusion
--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --bf16 --fp16 --fp8-format --fp8-amax-history-len
--fp8-amax-compute-algo --fp8-param-gather --accumulate-allreduce-grads-in-fp32 --optimizer
--use-precision-aware-optimizer --main-grads-dtype --main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype
--attention-backend --cross-entropy-loss-fusion --mock-data --tokenizer-type --tokenizer-model
--data-path --split --train-iters --lr --min-lr --lr-decay-style --lr-warmup-fraction --weight-decay --clip-grad
--adam-beta1 --adam-beta2 --sgd-momentum --log-interval --log-throughput --eval-iters --eval-interval --save --load
--save-interval --distributed-timeout-minutes --no-create-attention-mask-in-dataloader --manual-gc
--manual-gc-interval
"""
_SINCE: Mapping[int, str] = {
    12: """--recompute-modules --data-parallel-sharding-strategy --init-model-with-meta-device --fp8-recipe
        --first-last-layers-bf16 --num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16 --grad-reduce-in-bf16
        --optimizer-cpu-offload --optimizer-offload-fraction --overlap-cpu-optimizer-d2h-h2d --mtp-num-layers
        --mtp-loss-scaling-factor --moe-router-dtype --cross-entropy-fusion-impl --moe-enable-deepep""",
    13: """--pipeline-model-parallel-layout --qk-l2-norm --reuse-grad-buf-for-mxfp8-param-ag --sft
        --sft-tokenizer-prompt-format""",
    14: """--use-megatron-fsdp --rope-type --padded-vocab-size --overlap-moe-expert-parallel-comm""",
    15: """--window-size --window-attn-skip-freq --softmax-type --quick-geglu --glu-linear-offset
        --activation-func-clamp-value --fp4-format --fp4-recipe""",
    16: """--moe-shared-expert-gate --moe-flex-dispatcher-backend --outer-dp-sharding-strategy""",
}
_ONLY: Mapping[str, tuple[int, int]] = {"--use-custom-fsdp": (12, 13)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The core minor versions that have a flag: from ``since`` on, up to and with ``until``."""

    since: int
    until: int = MAIN

    def __contains__(self, minor: object) -> bool:
        return isinstance(minor, int) and self.since <= minor <= self.until

    def __str__(self) -> str:
        low, high = (f"core 0.{minor}" for minor in (self.since, self.until))
        return f"{low} on" if self.until == MAIN else f"{low} to {high}"


def _table() -> dict[str, Span]:
    """One span for every flag that is ever written."""
    spans = {flag: Span(since=OLDEST) for flag in _ALWAYS.split()}
    for since, flags in _SINCE.items():
        spans |= {flag: Span(since=since) for flag in flags.split()}
    return spans | {flag: Span(since=low, until=high) for flag, (low, high) in _ONLY.items()}


FLAGS: Mapping[str, Span] = _table()
"""Every flag that is ever written, with the versions that know it (read from the parser of each release tag)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A Megatron-LM version: its minor number (0.16 is 16, main is later than all) and its name."""

    minor: int
    name: str


def parse_version(text: str | None) -> Version:
    """``0.16``, ``0.16.1``, ``core_r0.16.0``, ``v0.13`` or ``main``; None is the newest release that is known well."""
    wanted = (text or DEFAULT_VERSION).strip().lower()
    if wanted in {"main", "dev"}:
        return Version(minor=MAIN, name="main")
    found = re.fullmatch(r"(?:core_)?[rv]?0\.([0-9]{1,2})(?:\.[0-9]+)?", wanted)
    minor = int(found[1]) if found else 0
    if not OLDEST <= minor < MAIN:
        raise fault(
            "megatron.version", "Megatron-LM version {text!r} is unknown: 0.{oldest} to 0.{newest}, or main",
            text=text, oldest=OLDEST, newest=MAIN - 1,
        )  # fmt: skip
    return Version(minor=minor, name=f"0.{minor}")


class Shell(str):
    """A word that the shell expands: written as it is, in double quotes."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Arguments:
    """Flags with their values, in order, for one version."""

    version: Version
    items: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def add(self, flag: str, *values: object) -> None:
        """Append a flag; one that the version lacks is the user's fault, one that no version has is ours."""
        assert flag in FLAGS, f"{flag} is in no version of Megatron-LM"
        assert flag not in (name for name, _ in self.items), f"{flag} is written twice"
        if self.version.minor not in FLAGS[flag]:
            raise fault(
                "megatron.flag", "{flag} exists in Megatron-LM {span}; the target is {version}",
                flag=flag, span=FLAGS[flag], version=self.version.name,
            )  # fmt: skip
        self.items.append((flag, tuple(value if isinstance(value, Shell) else str(value) for value in values)))

    def add_if(self, condition: object, flag: str, *values: object) -> None:
        """Append a flag where the condition holds."""
        if condition:
            self.add(flag, *values)

    def lines(self) -> Iterator[str]:
        """One shell line for each flag."""
        for flag, values in self.items:
            yield " ".join([flag, *(f'"{value}"' if isinstance(value, Shell) else quote(value) for value in values)])

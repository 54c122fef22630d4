"""What is wrong with the batch of NeMo-RL's files: prompts, samples, micro-batches, packs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.nemo_rl.asking import Asked, asks
from meshwright.frameworks.nemo_rl.keys import (
    BATCH,
    DTENSOR,
    DYNAMIC,
    LENGTH,
    LOG_PROB,
    MEGATRON,
    MICRO,
    MULTIPLE,
    PACKING,
    PAIRED,
)
from meshwright.frameworks.nemo_rl.packing import ACCURACY_RANKS
from meshwright.frameworks.rules import Mistake

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values

_POLICY = "nemo_rl/models/policy/lm_policy.py Policy.__init__"
_SHARDS = "nemo_rl/distributed/batched_data_dict.py shard_by_batch_size"
ALGORITHMS = ("concatenative", "first_fit_decreasing", "first_fit_shuffle", "modified_first_fit_decreasing")


def _total(asked: Asked) -> Iterator[Values]:
    total, batch = asked.samples, asked.count(BATCH)
    if total and batch and total % batch:
        yield at(asked.setting(BATCH), f"a divisor of {total}", total=total)


def _shards(asked: Asked) -> Iterator[Values]:
    batch, dp = asked.count(BATCH), asked.replicas
    pair = 2 if asked.algorithm in PAIRED else 1
    if batch and dp and batch * pair % dp:
        yield at(asked.setting(BATCH), f"a multiple of {dp}", batch=batch * pair, dp=dp)


def _micro(asked: Asked) -> Iterator[Values]:
    batch, dp, size = asked.count(BATCH), asked.replicas, asked.count(MICRO)
    if not asked.packs and not asked.sorts and batch and dp and size and batch % dp == 0 and batch // dp % size:
        yield at(asked.setting(MICRO), f"a divisor of {batch // dp}", each=batch // dp)


def _on_policy(asked: Asked) -> Iterator[Values]:
    total, batch = asked.samples, asked.count(BATCH)
    if asked.is_on("loss_fn.force_on_policy_ratio") and total and batch and total != batch:
        yield at(asked.setting(BATCH), total, total=total)


def _accuracy(asked: Asked) -> Iterator[Values]:
    tp, size, other = asked.degrees[0], asked.count(MICRO), asked.count(LOG_PROB)
    ignored = "NRL_IGNORE_TP_ACCURACY_CHECK" in asked.reading.source.environment
    if tp and tp >= ACCURACY_RANKS and size and other and size != other and not ignored and not asked.is_on(
        "loss_fn.force_on_policy_ratio"
    ):
        yield at(asked.setting(LOG_PROB), size, size=size, other=other)


def _multiplier(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{asked.algorithm}.batch_multiplier")
    if setting is not None and isinstance(setting.value, (int, float)) and setting.value != 1 and not asked.is_on(
        f"{asked.algorithm}.use_dynamic_sampling"
    ):
        yield at(setting, 1)


def _dynamic(asked: Asked) -> Iterator[Values]:
    pp = asked.degrees[1]
    if asked.sorts and pp and pp > 1:
        yield at(asked.setting(f"{DYNAMIC}.enabled"), False,
                 words="Dynamic batching is only supported for single pipeline parallel stage")
    if asked.sorts and asked.packs:
        yield at(asked.setting(f"{PACKING}.enabled"), False, words="Dynamic Batching is exclusive of Sequence Packing. Please "
                 "disable Sequence Packing to use Dynamic Batching")


def _context(asked: Asked) -> Iterator[Values]:
    cp, key = asked.degrees[2], f"{PACKING}.enabled"
    if cp and cp > 1 and not asked.packs and (asked.lacks(key) or asked.value(key) is False):
        yield at(asked.setting(key, asked.degree_keys[-1]), True)


def _context_packed(asked: Asked) -> Iterator[Values]:
    cp = asked.degrees[2]
    if cp and cp > 1 and asked.packs:
        yield at(asked.setting(f"{PACKING}.enabled"), False)


def _algorithm(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{PACKING}.algorithm")
    if asked.packs and setting is not None and isinstance(setting.value, str) and setting.value.lower() not in ALGORITHMS:
        yield at(setting, ALGORITHMS[-1], known=", ".join(each.upper() for each in ALGORITHMS))


def _order(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{PACKING}.microbatch_order")
    if asked.packs and setting is not None and isinstance(setting.value, str) and setting.value not in {"packer", "largest_first"}:
        yield at(setting, "packer")


def _bins(asked: Asked) -> Iterator[Values]:
    longest, multiple = asked.count(LENGTH), asked.count(MULTIPLE, 1)
    passes = ("train", "logprob") if asked.generates else ("train",)
    for key in (f"{PACKING}.{each}_mb_tokens" for each in passes):
        cap = asked.count(key)
        if asked.packs and longest and multiple and cap:
            tokens = -(-longest // multiple) * multiple
            if tokens > cap:
                yield at(asked.setting(key), tokens, tokens=tokens, key=key)


def _multiple(asked: Asked) -> Iterator[Values]:
    (tp, _, cp), multiple = asked.degrees, asked.count(MULTIPLE)
    factor = (2 * cp if cp and cp > 1 else 1) * (tp if tp and tp > 1 and asked.is_on(f"{MEGATRON}.sequence_parallel") else 1)
    if asked.packs and tp and cp and multiple and multiple % factor:
        yield at(asked.setting(MULTIPLE), f"a multiple of {factor}", factor=factor)


def _unread(asked: Asked) -> Iterator[Values]:
    """A cap of a way to form micro-batches that is off, where it is no product of what decides instead."""
    for section, on in ((PACKING, asked.packs), (DYNAMIC, asked.sorts)):
        key = f"{section}.train_mb_tokens"
        setting, longest, size = asked.setting(key), asked.count(LENGTH), asked.count(MICRO)
        if not on and setting is not None and isinstance(setting.value, int) and longest and size and (
            setting.value != longest * size and asked.value(f"{section}.enabled") is False
        ):
            yield at(setting, None, key=key, section=section)


def _packed_micro(asked: Asked) -> Iterator[Values]:
    size, cap, longest = asked.count(MICRO), asked.count(f"{PACKING}.train_mb_tokens"), asked.count(LENGTH)
    if asked.packs and size and cap and longest and size > 1 and cap < size * longest:
        yield at(asked.setting(MICRO), 1, cap=cap)


def batch_mistakes(section: str) -> tuple[Mistake, ...]:
    """Those of one back end."""
    return (
        Mistake("total-batch", "Total batch size ({total}) is not a multiple of batch_size ({value})", asks(section, _total),
                source=f"{_SHARDS} (first step)"),
        Mistake("shards", "Batch size ({batch}) is not a multiple of shards ({dp})", asks(section, _shards),
                source=f"{_SHARDS} (first step)"),
        Mistake("micro-batch", "Data dict size ({each}) is not a multiple of the provided microbatch size ({value})",
                asks(section, _micro), source="nemo_rl/distributed/batched_data_dict.py make_microbatch_iterator (first step)"),
        Mistake("on-policy-batch", "force_on_policy_ratio requires train_global_batch_size == num_prompts_per_step * "
                "num_generations_per_prompt ({total}, not {value})", asks(section, _on_policy),
                source="nemo_rl/algorithms/grpo.py setup"),
        Mistake("tensor-accuracy", "There is a known batch-variant accuracy issue with TP>=4 for both DTensor and Megatron "
                "backend: "
                "train_micro_batch_size ({size}) and logprob_batch_size ({other}) must be alike, or loss_fn.force_on_policy_ratio "
                "true", asks(section, _accuracy), source=_POLICY),
        Mistake("batch-multiplier", "batch_multiplier>1 can only be used if use_dynamic_sampling=True", asks(section, _multiplier),
                source="nemo_rl/algorithms/grpo.py setup"),
        Mistake("dynamic-batching", "{words}", asks(section, _dynamic), source=_POLICY),
        Mistake("context-unpacked", "Sequence Packing must be enabled to use Context Parallelism with MCore.",
                asks(section, _context, back_ends=(MEGATRON,)), source="nemo_rl/models/megatron/setup.py"),
        Mistake("context-packed", "Context parallel is not supported for sequence packing.",
                asks(section, _context_packed, back_ends=(DTENSOR,)), source="nemo_rl/models/automodel/setup.py"),
        Mistake("packing-algorithm", "Unknown packing algorithm: {value}. Available algorithms: {known}", asks(section, _algorithm),
                source="nemo_rl/data/packing/algorithms.py get_packer (first step)"),
        Mistake("packing-order", "sequence packing microbatch_order must be 'packer' or 'largest_first', got '{value}'",
                asks(section, _order), source=f"{_SHARDS} (first step)"),
        Mistake("bins", "Sequence length {tokens} exceeds bin capacity {value}: when the first sample of that length comes",
                asks(section, _bins), source="nemo_rl/data/packing/algorithms.py (a step)"),
        Mistake("padding", "make_sequence_length_divisible_by ({value}) is not a multiple of minimum_pad_factor ({factor}).",
                asks(section, _multiple, back_ends=(MEGATRON,)),
                source="nemo_rl/models/megatron/data.py _get_pack_sequence_parameters_for_megatron (first step); NeMo-RL issue "
                    "2110"),
        Mistake("unread-tokens", "nothing reads {key}: {section}.enabled is false", asks(section, _unread), "warning", _POLICY),
        Mistake("packed-micro-batch", "a packed micro-batch is one row of up to {cap} tokens: train_micro_batch_size {value} "
                "decides "
                "nothing", asks(section, _packed_micro), "advice", "nemo_rl/models/megatron/data.py get_microbatch_iterator"),
    )

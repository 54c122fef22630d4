"""What is wrong with the batch of verl's RL files: prompts, responses, mini- and micro-batches, caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import lcm
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.rules import Mistake
from meshwright.frameworks.verl.asking import CAP, DEPRECATED, DYNAMIC, MICRO, MINI, PASSES, PROMPTS, RESPONSES, Asked
from meshwright.frameworks.verl.keys import REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.rules import Finder
    from meshwright.frameworks.settings import Reading

_VALIDATE = "verl/utils/config.py validate_config"
_ACTOR = "verl/workers/config/actor.py ActorConfig"


def asks(section: str, find: Callable[[Asked], Iterator[Values]], *, tuning: bool = False) -> Finder:
    """A check that asks a reading of RL files, or of SFT files as well."""

    def found(reading: Reading, case: Case | None) -> Iterator[Values]:
        asked = Asked(reading, section)
        if (asked.is_rl or tuning) and asked.is_its_own:
            yield from find(asked)

    return found


def _minimal(asked: Asked) -> Iterator[Values]:
    prompts, responses, micro = asked.prompts, asked.count(RESPONSES), asked.count(MICRO, 0)
    unit = asked.replicas * micro if asked.is_megatron and asked.replicas and micro else None if asked.is_megatron else asked.world
    if asked.dynamic is False and prompts and responses and unit and prompts * responses % unit:
        step = lcm(unit, responses) // responses
        yield at(asked.setting(PROMPTS, RESPONSES, MICRO), f"a multiple of {step} prompts", real=prompts * responses, unit=unit)


def _no_micro(asked: Asked) -> Iterator[Values]:
    unset = asked.reading.source.value(MICRO) is None
    if asked.dynamic is False and unset and asked.is_megatron:
        yield at(asked.setting(MICRO, DYNAMIC), 1, value=None)


def _no_micro_fsdp(asked: Asked) -> Iterator[Values]:
    unset = all(asked.reading.source.value(key) is None for key in (MICRO, DEPRECATED))
    if asked.dynamic is False and unset and not asked.is_megatron:
        yield at(asked.setting(MICRO, DYNAMIC), 1, value=None)


def _no_log_prob(asked: Asked) -> Iterator[Values]:
    if asked.dynamic is not False:
        return
    for section in (ROLLOUT, *((REFERENCE,) if asked.has_reference else ())):
        keys = (f"{section}.log_prob_micro_batch_size", f"{section}.log_prob_micro_batch_size_per_gpu")
        stands = [asked.reading.source.value(key) is not None for key in keys]
        if all(stands):
            words = f"You have set both '{keys[0]}' AND '{keys[1]}'."
            yield at(asked.setting(keys[0]), None, section=section, words=words)
        if not any(stands):
            yield at(None, 1, section=section, words=f"Please set at least one of '{keys[0]}' or '{keys[1]}'.")


def _both(asked: Asked) -> Iterator[Values]:
    if asked.dynamic is False and all(asked.reading.source.value(key) is not None for key in (MICRO, DEPRECATED)):
        yield at(asked.setting(DEPRECATED), None)


def _mini(asked: Asked) -> Iterator[Values]:
    prompts, mini = asked.prompts, asked.count(MINI)
    if asked.dynamic is False and prompts and mini and prompts < mini:
        yield at(asked.setting(MINI, PROMPTS), prompts, prompts=prompts, mini=mini)


def _padded(asked: Asked) -> Iterator[Values]:
    """Batches that V1 fills with synthetic samples of two tokens."""
    prompts, mini, responses, dp = asked.prompts, asked.count(MINI), asked.count(RESPONSES), asked.replicas
    if not (prompts and mini and responses and dp) or asked.dynamic is None:
        return
    wrong = mini > prompts if asked.dynamic else False
    if wrong or (mini <= prompts and prompts % mini):
        whole, unit = prompts * responses, lcm(dp, mini * responses)
        yield at(asked.setting(MINI, PROMPTS), f"a divisor of {prompts}", whole=whole, padded=-(-whole // unit) * unit, mini=mini,
                 prompts=prompts)


def _ranks(asked: Asked) -> Iterator[Values]:
    mini, responses, dp = asked.count(MINI), asked.count(RESPONSES), asked.replicas
    if mini and responses and dp and mini * responses % dp:
        yield at(asked.setting(MINI, RESPONSES), f"samples that {dp} divides", samples=mini * responses, dp=dp)


def _chunks(asked: Asked) -> Iterator[Values]:
    mini, responses, dp = asked.count(MINI), asked.count(RESPONSES), asked.replicas
    chunks, pp = asked.count(f"{asked.engine}.virtual_pipeline_model_parallel_size", 1), asked.degrees[1]
    if asked.is_megatron and mini and responses and dp and chunks and chunks > 1 and mini * responses // dp < pp:
        yield at(asked.setting(MINI), f"{pp * dp} samples or more", each=mini * responses // dp, pp=pp)


def _switches(asked: Asked) -> Iterator[Values]:
    for section in (ROLLOUT, REFERENCE):
        setting = asked.setting(f"{section}.log_prob_use_dynamic_bsz")
        if setting is not None and isinstance(setting.value, bool) and asked.dynamic not in {None, setting.value} and (
            section == ROLLOUT or asked.has_reference
        ):
            stops = "verl stops with a bare AssertionError" if section == ROLLOUT else "the two passes are cut differently"
            yield at(setting, asked.dynamic, key=setting.key, stage=stops)


def _caps(asked: Asked) -> Iterator[Values]:
    if not asked.dynamic or not asked.longest:
        return
    own = asked.count(CAP)
    for key, name, inherits in ((CAP, "the actor", own), *(
        (f"{prefix}_max_token_len_per_gpu", name, own) for prefix, name in PASSES.items()
    )):
        setting, shards = asked.setting(key), asked.degrees[2]
        if key.startswith(REFERENCE) and not asked.has_reference:
            continue
        cap = asked.count(key, inherits or 0)
        if (setting is not None or key == CAP) and cap and cap * shards < asked.longest:
            yield at(setting, -(-asked.longest // shards), limit=cap * shards, longest=asked.longest, name=name)


def _dead(asked: Asked) -> Iterator[Values]:
    """A count of samples that packed micro-batches leave unread, and a cap that counted ones do."""
    dead = MICRO if asked.dynamic else CAP if asked.dynamic is False else None
    setting = asked.setting(dead) if dead else None
    if setting is not None and setting.value is not None and dead == MICRO and asked.setting(CAP) is None:
        yield at(setting, None, key=setting.key, instead=CAP)


def _deprecated(asked: Asked) -> Iterator[Values]:
    if (setting := asked.setting(DEPRECATED)) is not None and setting.value is not None:
        yield at(setting, None, key=DEPRECATED, instead=MICRO)


def batch_mistakes(section: str) -> tuple[Mistake, ...]:
    """Those of one back end."""
    return (
        Mistake("minimal-batch", "real_train_batch_size ({real}) must be divisible by minimal possible batch size ({unit})",
                asks(section, _minimal), source=_VALIDATE),
        Mistake("no-microbatch", "unsupported operand type(s) for *: 'int' and 'NoneType': ppo_micro_batch_size_per_gpu has no "
                "default, and use_dynamic_bsz is off", asks(section, _no_micro), source=_VALIDATE),
        Mistake("microbatch", "[actor] Please set at least one of 'actor.ppo_micro_batch_size' or "
                "'actor.ppo_micro_batch_size_per_gpu' if use_dynamic_bsz is not enabled.", asks(section, _no_micro_fsdp),
                source=f"{_ACTOR}.__post_init__"),
        Mistake("log-prob-microbatch", "[{section}] {words}", asks(section, _no_log_prob), source=_VALIDATE),
        Mistake("both-microbatches", "[actor] You have set both 'actor.ppo_micro_batch_size' AND "
                "'actor.ppo_micro_batch_size_per_gpu'. Please remove 'actor.ppo_micro_batch_size' because only "
                "'*_ppo_micro_batch_size_per_gpu' is supported (the former is deprecated).", asks(section, _both),
                source=f"{_ACTOR}.__post_init__"),
        Mistake("mini-batch-size", "train_batch_size ({prompts}) must be >= actor.ppo_mini_batch_size ({mini})",
                asks(section, _mini), source=f"{_ACTOR}.validate"),
        Mistake("padded-batch", "mini-batches of {mini} do not fill {prompts} prompts: verl takes it, and pads {whole} samples to "
                "{padded} with synthetic ones", asks(section, _padded), "warning",
                "verl/trainer/ppo/v1/trainer_base.py, verl/trainer/ppo/padding_utils.py", ("0.10",)),
        Mistake("mini-batch-ranks", "Got mini_batch_size={samples} and self.engine.get_data_parallel_size()={dp}",
                asks(section, _ranks), source="verl/workers/engine_workers.py (first step)"),
        Mistake("chunk-samples", "a rank has {each} samples of a mini-batch, and virtual stages need {pp}: AssertionError without "
                "a text (num_micro_batches <= num_groups)", asks(section, _chunks),
                source="verl/utils/seqlen_balancing.py rearrange_micro_batches; verl issue 1004"),
        Mistake("dynamic-switches", "{key} is {value}, and use_dynamic_bsz of the actor is not: {stage}", asks(section, _switches),
                source="verl/workers/engine_workers.py init_model"),
        Mistake("cap", "max_token_len must be greater than the sequence length. Got max_token_len={limit} and "
                "max_seq_len={longest}: of {name}, when the first sample of that length comes", asks(section, _caps),
                source="verl/utils/seqlen_balancing.py rearrange_micro_batches; verl issue 571"),
        Mistake("unread-microbatch", "with use_dynamic_bsz nothing reads {key}: {instead} decides, 16384 here",
                asks(section, _dead), "warning", "verl/workers/engine/utils.py prepare_micro_batches"),
        Mistake("deprecated-microbatch", "{key} counts samples of all GPUs and is deprecated: {instead} counts those of one",
                asks(section, _deprecated), "advice", f"{_ACTOR}"),
    )

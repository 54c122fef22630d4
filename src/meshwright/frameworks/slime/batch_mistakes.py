"""What is wrong with the batch of slime's flags: rollouts, steps, packs and their caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.megatron.asking import is_complete
from meshwright.frameworks.rules import At, Mistake
from meshwright.frameworks.slime.batch import Step
from meshwright.frameworks.slime.flags import BATCH, CAP, DYNAMIC, MICRO, PROMPTS, RESPONSES, STEPS
from meshwright.frameworks.slime.reading import asked, values_of

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.rules import Finder
    from meshwright.frameworks.settings import Reading

_SCHEDULE = "slime/utils/dp_schedule.py"


def _asks(find: Callable[[Reading, Step], Iterator[Values]]) -> Finder:
    """A check that asks the step of a reading."""
    return lambda reading, case: find(reading, asked(reading))


def _setting(reading: Reading, *keys: str) -> Setting | None:
    return next((found for key in keys if (found := reading.source.settings.get(key)) is not None), None)


def _steps(reading: Reading, step: Step) -> Iterator[Values]:
    values = values_of(reading)
    batch, steps = values.int(BATCH), values.int(STEPS)
    if batch and steps and step.rollout and batch != step.rollout // steps:
        yield at(_setting(reading, BATCH), step.rollout // steps, batch=batch, prompts=values.int(PROMPTS),
                 responses=values.int(RESPONSES, 1), steps=steps)


def _few(reading: Reading, step: Step) -> Iterator[Values]:
    if step.rollout and step.samples and step.rollout < step.samples:
        yield at(_setting(reading, BATCH, PROMPTS), step.rollout, rollout=step.rollout, batch=step.samples)


def _dropped(reading: Reading, step: Step) -> Iterator[Values]:
    if step.rollout and step.samples and step.rollout >= step.samples and step.rollout % step.samples:
        yield at(_setting(reading, BATCH, STEPS, PROMPTS), f"a divisor of {step.rollout}", rollout=step.rollout, batch=step.samples,
                 lost=step.rollout % step.samples)


def _split(reading: Reading, step: Step) -> Iterator[Values]:
    """Packs of a step that cannot be as many as a pipeline with virtual stages takes at once."""
    align = step.group * (step.dp or 1)
    if step.dynamic and step.group > 1 and step.dp and step.samples and step.samples < align:
        yield at(_setting(reading, BATCH, DYNAMIC), f"{align} samples or more", samples=step.samples, align=align)


def _static(reading: Reading, step: Step) -> Iterator[Values]:
    size = values_of(reading).int(MICRO, 1)
    if step.dynamic or step.group == 1 or not (step.dp and step.samples and size and size > 0):
        return
    made, align = -(-step.samples // size), step.group * step.dp
    if made % align:
        yield at(_setting(reading, MICRO, BATCH), None, made=made, align=align, samples=step.samples, size=size, dp=step.dp,
                 group=step.group)


def _long(reading: Reading, step: Step) -> Iterator[Values]:
    if step.dynamic and step.limit and step.longest and step.longest > step.limit:
        yield at(_setting(reading, CAP), -(-step.longest // step.cp), limit=step.limit, longest=step.longest, cp=step.cp)


def _uncounted(reading: Reading) -> bool:
    return asked(reading).dynamic


def _unpacked(reading: Reading) -> bool:
    return not asked(reading).dynamic


def whole(reading: Reading) -> bool:
    """Whether every word of a launch is known, so that what is not there stands nowhere."""
    return bool(reading.source.program) and is_complete(reading)


def _prompts(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.source.value(PROMPTS) is None and whole(reading):
        yield at(None, PROMPTS)


def _default(reading: Reading, step: Step) -> Iterator[Values]:
    silent = all(reading.source.value(key) is None for key in (BATCH, STEPS))
    if silent and step.samples and step.rollout and step.rollout != step.samples:
        yield at(_setting(reading, PROMPTS), f"{BATCH} {step.rollout}", batch=step.samples, rollout=step.rollout,
                 steps=step.rollout // step.samples)


def _oversampled(reading: Reading) -> Values | None:
    values = values_of(reading)
    tried, prompts = values.int("--over-sampling-batch-size"), values.int(PROMPTS)
    return {"prompts": prompts} if tried is not None and prompts is not None and tried < prompts else None


BATCHES = (
    Mistake("prompts", "the following arguments are required: --rollout-batch-size", _prompts),
    Mistake("steps", "global_batch_size {batch} is not equal to rollout_batch_size {prompts} * n_samples_per_prompt {responses} // "
            "num_steps_per_rollout {steps}", _asks(_steps)),
    Mistake("few-samples", "num_rollouts ({rollout}) < global_batch_size ({batch}); need at least one rollout per step.",
            _asks(_few), source=_SCHEDULE),
    Mistake("dropped", "{lost} of the {rollout} samples of a rollout are generated and then dropped without a word: steps take "
            "{batch} each", _asks(_dropped), "warning", _SCHEDULE),
    Mistake("batch-default", "--global-batch-size is not given: it is micro-batch size x data-parallel size, {batch} samples, so a "
            "rollout of {rollout} is {steps} steps", _asks(_default), "warning"),
    Mistake("no-cap", "max_tokens_per_gpu must be set when use_dynamic_batch_size is set", At(DYNAMIC, CAP, without=(CAP,))),
    Mistake("flops", "--balance-by-flops requires --use-dynamic-batch-size",
            At("--balance-by-flops", DYNAMIC, without=(DYNAMIC,))),
    Mistake("flops-cap", "--balance-by-flops lets packs exceed --max-tokens-per-gpu: memory has no bound by it",
            At("--balance-by-flops", "--balance-data", beside=(DYNAMIC,)), "warning", _SCHEDULE),
    Mistake("long-samples", "samples of up to {longest} tokens are longer than a pack ({limit} tokens: --max-tokens-per-gpu x "
            "{cp}): they get one of their own without a word, and memory that the cap does not bound", _asks(_long), "warning",
            _SCHEDULE),
    Mistake("log-probs-cap", "--log-probs-max-tokens-per-gpu is set and read nowhere: log-probabilities are computed over the "
            "micro-batches of the training", At("--log-probs-max-tokens-per-gpu", "no --log-probs-max-tokens-per-gpu"), "warning"),
    Mistake("unread-microbatch", "with --use-dynamic-batch-size nothing is cut by --micro-batch-size, and Megatron-LM still stops "
            "where it times the replicas does not divide the batch",
            At(MICRO, f"no {MICRO}", lambda value: str(value) != "1", when=_uncounted), "warning",
            "megatron/core/num_microbatches_calculator.py"),
    Mistake("unread-cap", "--max-tokens-per-gpu does nothing without --use-dynamic-batch-size", At(CAP, DYNAMIC, when=_unpacked),
            "warning", _SCHEDULE),
    Mistake("balance", "--balance-data evens out what ranks compute: without it micro-batches go round, whatever their lengths",
            At(DYNAMIC, "--balance-data", without=("--balance-data", "--balance-by-flops")), "advice", _SCHEDULE),
    Mistake("vocabulary", "unsupported operand type(s) for *: 'int' and 'NoneType': {key} counts the FLOPs of samples, and "
            "--vocab-size is not given", tuple(At(key, "--vocab-size", without=("--vocab-size",), when=whole)
                                               for key in ("--balance-data", "--balance-by-flops")),
            source="slime/utils/flops_utils.py"),
    Mistake("packs", "dynamic path: could only produce {samples} mbs after maximal splitting; need {align}. step 0 has {samples} "
            "samples, below the alignment threshold ({align}).", _asks(_split), source=_SCHEDULE),
    Mistake("counted", "static path: num_mbs ({made}) is not a multiple of dp_size * mb_group ({align}); got step_size={samples}, "
            "micro_batch_size={size}, dp_size={dp}, mb_group={group}. Splitting static mbs would break the fixed-size invariant; "
            "adjust the config so step_size % (dp_size * micro_batch_size * mb_group) == 0.", _asks(_static), source=_SCHEDULE),
    Mistake("oversampling", "over_sampling_batch_size {value} should be greater than or equal to rollout_batch_size {prompts}",
            At("--over-sampling-batch-size", PROMPTS, when=_oversampled)),
)

"""An optimizer step as slime's flags have it: samples of a rollout, and micro-batches counted or packed.

Source: slime/utils/arguments.py (``slime_validate_args``), slime/utils/dp_schedule.py (``build_dp_schedule``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from meshwright.frameworks.slime.flags import BATCH, CAP, DYNAMIC, MICRO, PROMPTS, RESPONSES, STEPS
from meshwright.frameworks.verl.batch import cap_for, longest_tokens

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.training import Batch
    from meshwright.frameworks.base import Values as Settings
    from meshwright.frameworks.compose import Values

_GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"


class Step(Struct, frozen=True, kw_only=True):
    """One step as files have it; None of what they leave open or only the run knows."""

    world: int | None
    tp: int
    pp: int
    cp: int
    rollout: int | None
    """Samples of a rollout."""
    samples: int | None
    """Of them those of an optimizer step."""
    longest: int | None
    """Tokens of the longest sample, as far as lengths are said."""
    dynamic: bool
    cap: int | None
    """Tokens of a GPU in a micro-batch."""
    group: int
    """Micro-batches of a rank come in multiples of it."""

    @property
    def dp(self) -> int | None:
        """Replicas, where the degrees divide the devices."""
        inner = self.tp * self.pp * self.cp
        return self.world // inner if self.world and self.world % inner == 0 else None

    @property
    def limit(self) -> int | None:
        """Tokens that a packed micro-batch holds at most, on all ranks of context parallelism together."""
        return None if self.cap is None else self.cap * self.cp


def count(values: Values, key: str, default: int | None = None) -> int | None:
    """A whole number of at least 1; the default where it is absent, None where it is wrong or only the run knows it."""
    if values.source.settings.get(key) is None:
        return default
    found = values.int(key)
    if found is not None and found < 1:
        values.note(key, "setting.degree", "{key} is {value}: at least 1 is expected", key=key, value=found)
        return None
    return found


def step_of(values: Values, world: int | None) -> Step:
    """The step that flags come to."""
    tp, pp, cp = (count(values, f"--{name}-parallel-size", 1) or 1 for name in ("tensor-model", "pipeline-model", "context"))
    prompts, responses = count(values, PROMPTS), count(values, RESPONSES, 1)
    rollout = prompts * responses if prompts and responses else None
    samples, steps = count(values, BATCH), count(values, STEPS)
    if samples is None and steps and rollout:
        samples = rollout // steps
    step = Step(
        world=world, tp=tp, pp=pp, cp=cp, rollout=rollout, samples=samples or None, longest=_longest(values),
        dynamic=values.bool(DYNAMIC), cap=count(values, CAP), group=_group(values, pp),
    )
    if step.dp and not any(key in values.source.settings for key in (BATCH, STEPS)):  # Megatron-LM's default
        return replace(step, samples=(count(values, MICRO, 1) or 1) * step.dp)
    return step


def _group(values: Values, pp: int) -> int:
    virtual = ("--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage")
    chunks = values.first(virtual) is not None or len(values.text("--pipeline-model-parallel-layout").split("|")) > pp
    return (count(values, _GROUP, pp) or pp) if pp > 1 and chunks else 1


def _longest(values: Values) -> int | None:
    """Of a context, or of a prompt and its response; ``--seq-length`` only stands for it where nothing is generated."""
    context = count(values, "--rollout-max-context-len")
    response, prompt = (count(values, f"--rollout-max-{name}-len") for name in ("response", "prompt"))
    if context or response:
        return context or (response or 0) + (prompt or 0)
    return count(values, "--seq-length")


def microbatch_of(step: Step, packs: Batch | None) -> int | None:
    """The micro-batch, in whole sequences, that stands for a packed one: what of the longest fits under the limit and divides a
    rank's batch into as many as its pipeline takes; None where that is not known."""
    tokens, sequences = (packs.sequence_tokens, packs.global_batch_sequences) if packs else (step.longest, step.samples)
    if not (step.limit and tokens and sequences and step.dp) or sequences % step.dp:
        return None
    return sequences_under(step.limit, tokens, sequences // step.dp, step.group)


def sequences_under(limit: int, tokens: int, sequences: int, group: int) -> int:
    """What of the longest samples fits under a limit and leaves a multiple of a group of micro-batches.

    >>> sequences_under(8192, 2048, 64, 1), sequences_under(1000, 2048, 64, 1), sequences_under(20000, 2048, 24, 4)
    (4, 1, 6)
    """
    most = max(limit // tokens, 1)
    sizes = [size for size in range(1, min(most, sequences) + 1) if sequences % size == 0 and sequences // size % group == 0]
    return max(sizes, default=1)


def micro_batches(case: Case, layout: Layout) -> Settings:
    """The micro-batch in both ways to say it: a count of samples, and the cap that a switch turns on where samples are packed."""
    cap, least = (cap_for(size, tokens, layout.context_parallel) for size, tokens in (
        (layout.microbatch_sequences, case.batch.sequence_tokens), (1, longest_tokens(case))))
    packed = case.batch.packing is not None  # Megatron-LM wants the count to divide the samples, whoever packs
    return {**({DYNAMIC: True} if packed else {}), MICRO: 1 if packed else layout.microbatch_sequences, CAP: max(cap, least)}

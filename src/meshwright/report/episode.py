"""The report of ``episode``: a step of reinforcement learning, phase by phase, and what holds the engine up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, Section, figure, line, pieces, table
from meshwright.report.estimate import limit_lines
from meshwright.report.headline import case_header
from meshwright.words import gib, integer, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.verbs.episode import EpisodeAnswer
    from meshwright.domain.episode import EpisodeEstimate, Generation
    from meshwright.domain.estimate import Estimate
    from meshwright.report.blocks import Told

BAR = 30
UNFITTED = "no run of an engine is among the evidence: generation is a roofline with priors, its error is not known"


def told_of(answer: EpisodeAnswer) -> Iterator[Told]:
    """What a terminal prints."""
    yield from case_header(answer.given.case)
    found = answer.estimate
    if found is None:
        share = percent(answer.engine.memory_ratio, 0)
        words = f": weights and one sample are more than {share} of a device; a larger --engine-memory, or more devices to a copy"
        yield line(Run("the engine has no room", "bad", bold=True), words, above=True)
        return
    yield line(
        Run(f"{seconds(found.seconds)} a step", bold=True), f": {integer(found.episode.samples)} samples, "
        f"{plural(found.episode.updates * found.episode.epochs, 'optimizer step')}, trainer {answer.trained.label}", above=True,
    )
    yield phases_section(found)
    yield Section(title="The engine", blocks=tuple(_engine_lines(found)))
    for phase in found.over:
        needed = f": {gib(phase.memory_bytes)} of {gib(found.memory_bytes)}"
        yield line(Run(f"{phase.name} does not fit", "bad"), needed, above=True)
    if not answer.trained.fits:
        yield line(Run("the trainer's layout does not fit", "bad"), above=True)
    yield line(f"note: {_training(answer.trained)}", kind="note", above=True)
    yield line(f"note: {UNFITTED}", kind="note")
    yield from limit_lines(answer.given.framework.name, answer.limits)


def phases_section(found: EpisodeEstimate) -> Section:
    """Seconds, share and memory of each phase, in their order."""
    rows = [
        (
            phase.name, figure(phase.seconds, seconds), percent(phase.seconds / found.seconds, 0),
            gib(phase.memory_bytes) if phase.memory_bytes else "", "\u2588" * round(BAR * phase.seconds / found.seconds),
        )
        for phase in found.phases
    ]
    return Section(
        title="A step, phase by phase", blocks=(table(("phase", "time", "share", "memory", ""), rows, right=(1, 2, 3), whole=(0,)),)
    )


def _engine_lines(found: EpisodeEstimate) -> Iterator[Block]:
    first, episode = found.generation, found.episode
    ran = f"{integer(first.most_running)} of {integer(first.samples)} sequences of a copy at once"
    yield pieces(
        f"tp{first.engine.tensor_parallel}", f"{gib(first.weights_bytes)} of weights on a device",
        f"room for {integer(round(first.room_tokens))} tokens of a copy", ran,
    )
    if first.tail_s > 0.0:
        times = episode.response.longest_tokens / episode.response.mean_tokens
        lasts = f"{seconds(first.tail_s)} ({percent(first.tail_s / first.seconds, 0)})"
        longest = f"the longest response is {times:.2g} times the mean"
        yield line(f"the tail: for {lasts} fewer than half as many run; {longest}", indent=2)
    if found.waits:
        yield line("parameters, gradients and optimizer do not fit beside it: they go to the host and back", indent=2)
    if found.others:
        yield pieces("other copies", *map(_way, found.others), kind="small")


def _way(each: Generation) -> str:
    return f"tp{each.engine.tensor_parallel}: {seconds(each.seconds)}, {integer(each.most_running)} at once"


def _training(trained: Estimate) -> str:
    interval = trained.interval
    words = f"one optimizer step {seconds(trained.step_s)}"
    if interval is not None:
        words += f", {seconds(interval.step_s[0])} to {seconds(interval.step_s[1])} with {percent(interval.level, 0)}"
    return f"{words}; log-probabilities are forwards of the same micro-batches"

"""What a log says of a run: its steps, its settings, its timers, and what it complains of."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from meshwright.domain.observed.ending import Ending
from meshwright.domain.observed.place import Place
from meshwright.value import Value


class Step(Value, frozen=True, kw_only=True):
    """One optimizer step as a log prints it; where it prints means over several, the mean step and how many it stands for.

    Of reinforcement learning a step is all of it, generation and several optimizer steps: then ``parts`` has the phases.
    """

    number: int
    step_s: float | None
    line: int
    averaged: int = 1
    """Steps that the figures are a mean of."""
    at_s: float | None = None
    """When it was printed, in seconds on the log's own clock."""
    sequences: int | None = None
    """The global batch."""
    tokens: int | None = None
    """Of the global batch, where the log counts them."""
    rank_tokens: int | None = None
    """Of the rank that prints, padding included, where it counts its own."""
    padded_tokens: int | None = None
    """Of these, padding."""
    tokens_per_s_per_device: float | None = None
    model_flops_per_s_per_device: float | None = None
    """By the log's own convention of useful work, recomputation left out."""
    hardware_flops_per_s_per_device: float | None = None
    mfu_ratio: float | None = None
    memory_bytes: float | None = None
    """Reserved at most on the rank that prints."""
    loss: float | None = None
    optimizer_steps: int | None = None
    """Of a step of reinforcement learning, where the log counts them."""
    actor_mfu_ratio: float | None = None
    """Of the actor's update alone."""
    host_bytes: float | None = None
    """Memory of the host in use."""
    response_mean_tokens: float | None = None
    response_most_tokens: float | None = None
    """The longest response, for which generation waits."""
    prompt_mean_tokens: float | None = None
    skipped: int = 0
    """Steps skipped in this one (loss scale, not finite), as the log counts them."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Timer -> seconds of the step, on the slowest rank where several are said; named as in ``PARTS``."""
    least: Mapping[str, float] = field(default_factory=dict)
    """The same on the fastest rank."""


class Timer(Value, frozen=True, kw_only=True):
    """A time outside of steps, such as that of a checkpoint."""

    name: str
    least_s: float
    most_s: float
    line: int
    step: int | None = None


class RankMemory(Value, frozen=True, kw_only=True):
    """What the allocator of one rank says; bytes."""

    rank: int
    step: int
    line: int
    allocated_bytes: float | None = None
    max_allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    max_reserved_bytes: float | None = None


class Sign(Value, frozen=True, kw_only=True):
    """Something that the file itself complains of: a known warning or error."""

    id: str
    """As in the table of signs: ``allocator.retries``, ``compile.recompiled``, ``nccl.timeout``."""
    place: Place
    text: str
    """The line, cut to a few hundred characters."""
    times: int = 1
    rank: int | None = None
    value: float | None = None
    """Its figure, where it has one (retries, milliseconds)."""
    at_s: float | None = None
    """When it was printed, in seconds on the log's own clock."""
    last_line: int | None = None
    """Where it was seen last."""


class RunLog(Value, frozen=True, kw_only=True):
    """One log, or one of several ranks' logs."""

    file: str
    format: str
    framework: str = ""
    """As ``--framework`` has it; empty where the format does not tell."""
    steps: tuple[Step, ...] = ()
    """By number, each once, however many ranks print it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The log's own dump of its arguments, as it spells them."""
    world: int | None = None
    """Ranks of the run, said or worked out."""
    sequence_tokens: int | None = None
    timers: tuple[Timer, ...] = ()
    memory: tuple[RankMemory, ...] = ()
    signs: tuple[Sign, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    """Other figures that stand once, SI units in their names: ``parameters``, ``train_runtime_s``."""
    ending: Ending | None = None
    """How the run ended, as far as this log alone tells; of several logs ask ``readers.endings``."""
    notes: tuple[str, ...] = ()
    """What was assumed or left out while reading, in whole sentences."""
    lines: int = 0

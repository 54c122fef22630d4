"""A run as it was seen: observations by kind, the steps that count, where they went, and the prediction beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from meshwright.diagnose.phases import Phases, phases_of
from meshwright.diagnose.recorded import Recorded, recorded
from meshwright.diagnose.split import Split, of_log, of_splits, of_traces
from meshwright.diagnose.training import Training, training_of
from meshwright.domain.observed import (
    Bandwidths,
    Counters,
    Hang,
    Hanging,
    MemorySnapshot,
    NetworkSetup,
    Observation,
    OutOfMemories,
    RankSplit,
    RankTrace,
    RunLog,
    Sign,
)
from meshwright.domain.observed.ranks import Together, together
from meshwright.domain.observed.steady import Steady, steady
from meshwright.readers.hangs.locate import located

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed.ending import Ending
    from meshwright.frameworks.base import Framework
    from meshwright.judging.facts import Facts

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that is known of one run."""

    observations: tuple[Observation, ...]
    window: tuple[int, int] | None = None
    framework: Framework | None = None
    """Whose keys remedies are said in."""
    facts: Facts | None = None
    """The case, its layout and the prediction; None where something of them is not known."""
    bare_layout: Layout | None = None
    """The layout, where it is known and the case is not."""
    num_devices: int | None = None
    """Of the run, where somebody says it beside the files."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the framework's files beside the log, or of the log that the case was read from."""
    peak_flops_per_s: float | None = None
    """Of one device, where it is known."""
    device_memory_bytes: float | None = None
    ending: Ending | None = None

    def all(self, kind: type[T]) -> tuple[T, ...]:
        """Observations of one kind."""
        return tuple(each for each in self.observations if isinstance(each, kind))

    @cached_property
    def log(self) -> RunLog | None:
        """The log that says most of steps."""
        logs = [each for each in self.all(RunLog) if each.steps or each.settings]
        return max(logs, key=lambda each: (len(each.steps), len(each.settings)), default=None)

    @cached_property
    def traces(self) -> tuple[RankTrace, ...]:
        """Traces with anything in their window, by rank."""
        return tuple(sorted(self.all(RankTrace), key=lambda each: (each.rank is None, each.rank or 0, each.file)))

    @property
    def splits(self) -> tuple[RankSplit, ...]:
        """Rows of tables that profilers write of all ranks."""
        return self.all(RankSplit)

    @property
    def networks(self) -> tuple[NetworkSetup, ...]:
        """What communication libraries say of themselves."""
        return self.all(NetworkSetup)

    @property
    def bandwidths(self) -> tuple[Bandwidths, ...]:
        """Tables of bandwidths."""
        return self.all(Bandwidths)

    @property
    def counters(self) -> tuple[Counters, ...]:
        """Samples of devices."""
        return self.all(Counters)

    @property
    def hangings(self) -> tuple[Hanging, ...]:
        """Dumps and watchdogs' lines."""
        return self.all(Hanging)

    @property
    def snapshots(self) -> tuple[MemorySnapshot, ...]:
        """Allocators' snapshots."""
        return self.all(MemorySnapshot)

    @property
    def out_of_memory(self) -> tuple[OutOfMemories, ...]:
        """Messages of memory that ended."""
        return self.all(OutOfMemories)

    @cached_property
    def hang(self) -> Hang | None:
        """What the run waits for, where it hangs."""
        return located(self.hangings, self.world)

    @property
    def signs(self) -> tuple[Sign, ...]:
        """What any file complains of."""
        sources: tuple[RunLog | NetworkSetup | Bandwidths, ...] = (*self.all(RunLog), *self.networks, *self.bandwidths)
        return tuple(sign for each in sources for sign in each.signs)

    @cached_property
    def steady(self) -> Steady | None:
        """The steps of the log that count."""
        return steady(self.log.steps, self.window) if self.log is not None else None

    @property
    def case(self) -> Case | None:
        """The case, where it is known."""
        return self.facts.case if self.facts is not None else None

    @property
    def layout(self) -> Layout | None:
        """The layout, where it is known."""
        return self.facts.layout if self.facts is not None else self.bare_layout

    @property
    def label(self) -> str | None:
        """The layout's name, where the layout is known."""
        from meshwright.domain.label import label

        if self.facts is not None:
            return self.facts.estimate.label
        return None if self.bare_layout is None else label(self.bare_layout)

    @property
    def predicted(self) -> Estimate | None:
        """The prediction, where there is one."""
        return self.facts.estimate if self.facts is not None else None

    @cached_property
    def world(self) -> int | None:
        """Ranks of the run."""
        said = [
            self.layout.world if self.layout is not None else None,
            self.num_devices,
            self.log.world if self.log is not None else None,
        ]
        said += [each.world for each in self.traces] + [each.world for each in self.networks]
        return next((each for each in said if each), None)

    @cached_property
    def step_s(self) -> float | None:
        """Seconds of a step: of the log, else of the traces' annotated steps."""
        if self.steady is not None:
            return self.steady.step_s
        spans = [step.end_s - step.start_s for each in self.traces for step in each.steps]
        return median(spans) if spans else None

    @cached_property
    def split(self) -> Split | None:
        """Where the step went: by traces where there are any, else by timers, else by a profiler's table."""
        of_trace = of_traces(self.traces, self.dimensions, self.waiting_s, self.step_s) if self.traces else None
        if of_trace is not None:
            return of_trace
        by_timers = None
        if self.log is not None and self.steady is not None and self.steady.parts:
            by_timers = of_log(self.steady, self.layout, f"the timers of {self.log.file}")
        return by_timers or (of_splits(self.splits) if self.splits else None)

    @cached_property
    def phases(self) -> Phases | None:
        """The phases of a step of reinforcement learning; None of a step that only trains."""
        if self.log is None or self.steady is None or not self.steady.parts:
            return None
        return phases_of(self.steady, f"the timers of {self.log.file}")

    @cached_property
    def training(self) -> Training | None:
        """The actor's update in a step of reinforcement learning."""
        if self.phases is None or self.steady is None:
            return None
        return training_of(self.phases, self.steady, self.said_settings)

    @property
    def said_settings(self) -> Mapping[str, str]:
        """Of files beside the log, and of the log, whose word counts."""
        return {**self.settings, **(self.log.settings if self.log is not None else {})}

    @cached_property
    def dimensions(self) -> Mapping[str, str]:
        """Process group -> dimension of the layout."""
        from meshwright.diagnose.groups import dimensions

        inside = self.framework is not None and self.framework.facts.stages_inside_replicas
        return dimensions(self.traces, self.layout, inside)

    @cached_property
    def recorded(self) -> Recorded | None:
        """What records of every rank's steps and exchanges say together; None where there are none."""
        return recorded(self.traces, self.dimensions)

    @cached_property
    def together(self) -> Together | None:
        """Traces of several ranks on one clock; None of fewer."""
        return together(self.traces) if len(self.traces) > 1 else None

    @cached_property
    def waiting_s(self) -> float | None:
        """Seconds of a step that a rank spends in collectives before the last one comes; None where ranks cannot be joined."""
        found = self.together
        if found is None or not found.matched or not found.waiting_s:
            return None
        steps = max(len(each.by_step) or len(each.steps) for each in self.traces) or 1
        return sum(found.waiting_s.values()) / len(found.waiting_s) / steps

    @property
    def tokens_per_s_per_device(self) -> float | None:
        """The log's own figure, or what its steps, batch and world come to; of a step with phases, of all of it."""
        if self.steady is None or self.log is None:
            return None
        said = [each.tokens_per_s_per_device for each in self.steady.steps if each.tokens_per_s_per_device is not None]
        if said:
            return median(said)
        tokens, world = self.tokens, self.world
        return None if tokens is None or world is None else tokens / self.steady.step_s / world

    @property
    def tokens(self) -> float | None:
        """Of one step."""
        if self.steady is None or self.log is None:
            return None
        said = [each.tokens for each in self.steady.steps if each.tokens is not None]
        if said:
            return median(said)
        if self.phases is not None:
            return None
        sequences = [each.sequences for each in self.steady.steps if each.sequences is not None]
        length = self.log.sequence_tokens or (self.case.batch.sequence_tokens if self.case is not None else None)
        if sequences and length:
            return median(sequences) * length
        return self.case.batch.tokens if self.case is not None else None

    @property
    def model_flops_per_s_per_device(self) -> float | None:
        """As the log counts them."""
        said = [each.model_flops_per_s_per_device for each in (self.steady.steps if self.steady else ())]
        known = [each for each in said if each is not None]
        return median(known) if known else None

    @property
    def mfu_ratio(self) -> float | None:
        """Said by the log, or worked out: its rate over the device's peak, or the prediction's work over the observed time.

        Of a step with phases None: nobody counts the work of generation.
        """
        if self.phases is not None:
            return None
        said = [each.mfu_ratio for each in (self.steady.steps if self.steady else ()) if each.mfu_ratio is not None]
        if said:
            return median(said)
        if self.predicted is not None and self.step_s:
            return _share(self.predicted.mfu_ratio * self.predicted.step_s / self.step_s)
        rate = self.model_flops_per_s_per_device
        return _share(rate / self.peak_flops_per_s) if rate is not None and self.peak_flops_per_s else None

    @property
    def response_tokens(self) -> tuple[float | None, float | None]:
        """Tokens of the mean response and of the longest, in the median step."""
        steps = self.steady.steps if self.steady is not None else ()
        means = [each.response_mean_tokens for each in steps if each.response_mean_tokens is not None]
        longest = [each.response_most_tokens for each in steps if each.response_most_tokens is not None]
        return median(means) if means else None, median(longest) if longest else None

    @property
    def actor_mfu_ratio(self) -> float | None:
        """Of the actor's update, as the log says it."""
        said = [each.actor_mfu_ratio for each in (self.steady.steps if self.steady else ()) if each.actor_mfu_ratio is not None]
        return median(said) if said else None

    @property
    def host_bytes(self) -> float | None:
        """Memory of the host in use at most, as the log says it."""
        said = [each.host_bytes for each in (self.steady.steps if self.steady else ()) if each.host_bytes is not None]
        return max(said, default=None)

    @property
    def memory_bytes(self) -> float | None:
        """Reserved at most on any rank that says so."""
        found = [each.max_reserved_bytes for log in self.all(RunLog) for each in log.memory if each.max_reserved_bytes is not None]
        found += [each.memory_bytes for each in (self.steady.steps if self.steady else ()) if each.memory_bytes is not None]
        return max(found, default=None)


def _share(ratio: float) -> float | None:
    """A share of a whole; None where it is more: then it is another whole."""
    return ratio if ratio <= 1.0 else None

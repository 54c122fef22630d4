"""What the predicates ask about a case and its layout; each answer is computed when it is first asked for, and once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from meshwright.errors import Message
from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.naming import name_of
from meshwright.estimate.overlap import overlap_for
from meshwright.estimate.several import estimates
from meshwright.estimate.single import estimate as estimate_of
from meshwright.judging.alternatives import Alternative, alternatives
from meshwright.judging.neighbours import compared, vary
from meshwright.judging.questions import MICRO_BATCHES, columns_of_layouts, questions
from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.search import layout_refusals
from meshwright.search.ranking import ranking_error
from meshwright.search.runner import Functions
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.runner import Runner

ANYONE = Functions()
"""A framework that runs everything."""


class Trial(Struct, frozen=True, kw_only=True):
    """Another layout of the same case, estimated, with the framework's rules that refuse it."""

    layout: Layout
    estimate: Estimate
    refused_because: tuple[str, ...]

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.estimate.step_s

    @property
    def expected_step_s(self) -> float:
        """The step with the risk that it does not fit."""
        return self.estimate.expected_step_s

    @property
    def reserved_bytes(self) -> float:
        """What it reserves on its fullest device."""
        return self.estimate.memory_reserved_bytes


class Facts:
    """A case, a layout and its estimate, and everything that can be derived from them."""

    def __init__(
        self, case: Case, layout: Layout, features: Features, estimate: Estimate | None = None, runner: Runner = ANYONE
    ) -> None:
        """Keep what is given; estimate the layout where that was not done yet. ``runner``: the framework that is to run others."""
        self.case, self.layout, self.features, self.runner = case, layout, features, runner
        self.estimate = estimate if estimate is not None else estimate_of(case, layout)
        self._trials: dict[Layout, Estimate] = {layout: self.estimate}
        self._work = KnownWork()
        self._refused: dict[Layout, tuple[str, ...]] = {}

    @property
    def error_ratio(self) -> float:
        """Step times nearer than this are equal: the model cannot tell them apart (``search.ranking.ranking_error``)."""
        return ranking_error(self.case)

    @cached_property
    def parameters(self) -> int:
        """Parameters of the model."""
        return total_parameters(self.case.model)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that a token passes."""
        return active_parameters(self.case.model)

    @property
    def step_s(self) -> float:
        """Seconds of a step of the layout."""
        return self.estimate.step_s

    @cached_property
    def terms(self) -> dict[str, float]:
        """Seconds by term."""
        return {term.name: term.value for term in self.estimate.terms}

    def share(self, *names: str) -> float:
        """Share of the step that terms take together; names are beginnings."""
        return sum(value for name, value in self.terms.items() if name.startswith(names)) / self.step_s

    @property
    def communication_ratio(self) -> float:
        """Exposed communication over the step."""
        time = self.estimate.time
        exposed = (
            time.tensor_parallel_s + time.context_parallel_s + time.expert_parallel_s + time.pipeline_exposed_s
            + time.data_parallel_exposed_s
        )
        return exposed / self.step_s

    @property
    def tokens_per_device(self) -> float:
        """Tokens of a micro-batch on one device, after TP and CP have cut them."""
        layout = self.layout
        return layout.microbatch_sequences * self.case.batch.sequence_tokens / layout.context_parallel / layout.tensor_parallel

    @cached_property
    def best(self) -> dict[str, Alternative]:
        """The best layout under each question, over the grid, its refinements, and this layout itself.

        Holds:   its figures are those of its estimate, simulated where that is, as everything else on a page.
        """
        wanted = tuple(sorted({*MICRO_BATCHES, self.layout.microbatch_sequences}))
        known = () if layout_refusals(self.case, self.features, self.layout) else (self.layout,)
        found = alternatives(self.case, self.features, self.layout.world, self.layout.overlap, self.parameters, wanted, known=known)
        layouts = list(dict.fromkeys([*known, *(self.own(each.layout) for each in found.values())]))
        self.know([*layouts, *compared(self.case, self.features, self.layout)])  # whoever asks for one judges the other
        trials = [each for each in map(self.trial, layouts) if not each.refused_because]
        if not trials:
            return {}
        columns, asked = columns_of_layouts([each.layout for each in trials]), questions(self.case, self.parameters)
        answers = {name: [*compress(trials, asked[name](columns))] for name in found}
        return {name: self._answer(answer) for name, answer in answers.items() if answer}

    def _answer(self, trials: Iterable[Trial]) -> Alternative:
        """The one that fits and is expected to be fastest; where none fits, the least demanding."""
        every = list(trials)
        fitting = [each for each in every if each.estimate.fits]
        return self.alternative(
            min(fitting, key=lambda each: each.expected_step_s) if fitting else min(every, key=lambda each: each.reserved_bytes)
        )

    def alternative(self, trial: Trial) -> Alternative:
        """A trial as an answer to a question."""
        return Alternative(
            label=self.label(trial.layout), layout=trial.layout, step_s=trial.step_s, expected_step_s=trial.expected_step_s,
            memory_reserved_bytes=trial.reserved_bytes, fits=trial.estimate.fits, chance_s=trial.estimate.chance_s,
        )

    def own(self, layout: Layout) -> Layout:
        """A layout with what the framework overlaps under it."""
        return replace(layout, overlap=self.runner.overlap(self.case, layout))

    def label(self, layout: Layout) -> str:
        """A label that means this layout when it is read again: silent on what the framework overlaps by itself."""
        return name_of(self.case, layout, self.runner.overlap(self.case, replace(layout, overlap=overlap_for(self.case))))

    def refusals(self, layout: Layout, case: Case | None = None) -> tuple[str, ...]:
        """Why a layout cannot be run: rules of the search, or the framework's own, unless they refuse the explained one, too."""
        if case is not None:
            return self._refusals(layout, case)
        if layout not in self._refused:
            self._refused[layout] = self._refusals(layout, self.case)
        return self._refused[layout]

    def _refusals(self, layout: Layout, case: Case) -> tuple[str, ...]:
        rules = layout_refusals(case, self.features, layout)
        if layout == self.layout or not all(rule.startswith("the framework has no") for rule in rules):
            return rules
        return tuple(reason for id, reason in self._asked(case, layout) if id not in self._known) or rules  # its words say why

    @cached_property
    def _known(self) -> frozenset[object]:
        """What the framework has against the explained layout itself."""
        return frozenset(id for id, _ in self._asked(self.case, self.layout))

    def _asked(self, case: Case, layout: Layout) -> Iterator[tuple[object, str]]:
        """Identifier and words of everything that the framework has against a layout."""
        for each in self.runner.check(case, layout):
            yield (each.id, replace(each, path="").words) if isinstance(each, Message) else (None, "the framework refuses it")

    def trial(self, layout: Layout, case: Case | None = None) -> Trial:
        """Another layout estimated once, or an estimate under another case."""
        if case is not None:
            return Trial(layout=layout, estimate=estimate_of(case, layout), refused_because=self.refusals(layout, case))
        self.know((layout,))
        return Trial(layout=layout, estimate=self._trials[layout], refused_because=self.refusals(layout))

    def trials(self, layouts: Sequence[Layout]) -> list[Trial]:
        """Other layouts, estimated together."""
        self.know(layouts)
        return [self.trial(layout) for layout in layouts]

    def know(self, layouts: Iterable[Layout]) -> None:
        """Estimate layouts together that will be tried one by one."""
        new = [layout for layout in dict.fromkeys(layouts) if layout not in self._trials]
        self._trials.update(zip(new, estimates(self.case, new, self._work), strict=True))

    def varied(self, **knobs: Any) -> Trial | None:
        """The layout with other knobs, rebalanced; None where a division fails or a rule refuses it."""
        found = vary(self.case, self.features, self.layout, **knobs)
        if isinstance(found, str):
            return None
        return None if self.refusals(found) else self.trial(found)

    def with_batch(self, factor: float) -> Trial | None:
        """The layout at a global batch larger or smaller by a factor, in more or fewer micro-batches."""
        m = self.layout.num_microbatches * factor
        return None if m < 1 or m != int(m) else self.in_microbatches(int(m))

    def in_microbatches(self, number: int) -> Trial | None:
        """The layout with so many micro-batches, at the global batch that they make; None where that breaks a new rule."""
        layout = replace(self.layout, num_microbatches=number)
        sequences = layout.data_parallel * layout.microbatch_sequences * number
        case = replace(self.case, batch=replace(self.case.batch, global_batch_sequences=sequences))
        known = layout_refusals(self.case, self.features, self.layout)
        new = any(reason not in known for reason in self.refusals(layout, case))
        return None if new else self.trial(layout, case)

    @cached_property
    def linearity(self) -> tuple[float, int] | None:
        """Linearity and the devices of its baseline: the fewest whole nodes on which a layout fits."""
        if self.estimate.linearity_ratio is not None:
            return self.estimate.linearity_ratio, self.estimate.linearity_baseline_devices or self.layout.world
        cluster = self.case.cluster
        if self.layout.world != cluster.num_devices or cluster.num_devices % cluster.devices_per_node:
            return None
        for nodes in divisors(cluster.num_nodes)[:-1]:
            devices = nodes * cluster.devices_per_node
            own = replace(self.case, cluster=replace(cluster, num_devices=devices))
            found = alternatives(own, self.features, devices, self.layout.overlap, self.parameters, only=("any",)).get("any")
            if found is not None and found.fits:
                rate = self.case.batch.tokens / found.step_s / devices
                return self.estimate.tokens_per_s_per_device / rate, devices
        return None

"""What the predicates ask about a case and its layout; each answer is computed when it is first asked for, and once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any

from meshwright.domain.label import label
from meshwright.estimate.single import estimate as estimate_of
from meshwright.judging.alternatives import Alternative, alternatives
from meshwright.judging.neighbours import vary
from meshwright.judging.questions import MICRO_BATCHES, columns_of_layouts, questions
from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.search import layout_refusals
from meshwright.search.plan import RANKING_ERROR
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

ERROR = RANKING_ERROR
"""Step times nearer than this are equal: the model cannot tell them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Another layout of the same case, estimated, with the framework's rules that refuse it."""

    layout: Layout
    estimate: Estimate
    refused_because: tuple[str, ...]

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.estimate.step_s

    @property
    def reserved_bytes(self) -> float:
        """What it reserves on its fullest device."""
        return self.estimate.memory_reserved_bytes


class Facts:
    """A case, a layout and its estimate, and everything that can be derived from them."""

    def __init__(self, case: Case, layout: Layout, features: Features, estimate: Estimate | None = None) -> None:
        """Keep what is given; estimate the layout where that was not done yet."""
        self.case, self.layout, self.features = case, layout, features
        self.estimate = estimate if estimate is not None else estimate_of(case, layout)
        self._trials: dict[Layout, Estimate] = {layout: self.estimate}

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
        trials = [self.trial(layout) for layout in dict.fromkeys(each.layout for each in found.values())]
        columns, asked = columns_of_layouts([each.layout for each in trials]), questions(self.case, self.parameters)
        return {name: self._answer(compress(trials, asked[name](columns))) for name in found}

    def _answer(self, trials: Iterable[Trial]) -> Alternative:
        """The fastest that fits; where none does, the least demanding."""
        every = list(trials)
        fitting = [each for each in every if each.estimate.fits]
        best = min(fitting, key=lambda each: each.step_s) if fitting else min(every, key=lambda each: each.reserved_bytes)
        return Alternative(
            label=label(best.layout, overlap=self.layout.overlap), layout=best.layout, step_s=best.step_s,
            memory_reserved_bytes=best.reserved_bytes, fits=bool(fitting),
        )

    def trial(self, layout: Layout, case: Case | None = None) -> Trial:
        """Another layout estimated once, or an estimate under another case."""
        if case is not None:
            return Trial(
                layout=layout, estimate=estimate_of(case, layout), refused_because=layout_refusals(case, self.features, layout)
            )
        if layout not in self._trials:
            self._trials[layout] = estimate_of(self.case, layout)
        refused = layout_refusals(self.case, self.features, layout)
        return Trial(layout=layout, estimate=self._trials[layout], refused_because=refused)

    def varied(self, **knobs: Any) -> Trial | None:
        """The layout with other knobs, rebalanced; None where a division fails or a rule refuses it."""
        found = vary(self.case, self.features, self.layout, **knobs)
        if isinstance(found, str):
            return None
        return None if layout_refusals(self.case, self.features, found) else self.trial(found)

    def with_batch(self, factor: float) -> Trial | None:
        """The layout at a global batch larger or smaller by a factor, in more or fewer micro-batches."""
        m = self.layout.num_microbatches * factor
        if m < 1 or m != int(m):
            return None
        batch = replace(self.case.batch, global_batch_sequences=round(self.case.batch.global_batch_sequences * factor))
        case, layout = replace(self.case, batch=batch), replace(self.layout, num_microbatches=int(m))
        known = layout_refusals(self.case, self.features, self.layout)
        new = any(reason not in known for reason in layout_refusals(case, self.features, layout))
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

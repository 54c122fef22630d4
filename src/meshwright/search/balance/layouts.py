"""A case and a layout as a pipeline to be balanced, and the answer as a layout: all times and bytes are the cost model's own."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from meshwright.domain.balance import BalanceProblem, Body, End
from meshwright.domain.kernels import with_kernels
from meshwright.domain.label import parse_recompute, recompute_word
from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective, mixed, ordered_parts
from meshwright.estimate.combine import state_costs
from meshwright.estimate.degrees import Degrees, columns_of, degrees_of
from meshwright.estimate.evaluate import settings_of, split_of
from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.memory import held_bytes, static_bytes
from meshwright.estimate.split import Composition
from meshwright.estimate.stages import stage_inputs, stage_parameters, together, under
from meshwright.estimate.tables import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.balance import Grid, Placement, RecomputeRule
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Recompute, Treatment
    from meshwright.domain.model import Model
    from meshwright.estimate.costs import Settings
    from meshwright.estimate.stages import StageInputs

    Floats = NDArray[np.float64]

MOST_BODIES = 4
"""A model whose kinds of layers alternate more often is one body of their mean."""


class Choice(Struct, frozen=True, kw_only=True):
    """What a framework lets one choose of recomputation: the treatments, the first of them the lightest, and how freely."""

    treatments: tuple[Treatment, ...]
    rule: RecomputeRule = "any"


def choices(features: Features, layout: Layout, *, pinned: bool = False) -> tuple[Choice, ...]:
    """The ways in which a framework can recompute a layout's layers: all as they are, and stage by stage as far as it can.

    ``pinned``: recomputation is not to be touched.
    """
    whole: Treatment
    match layout.recompute:
        case Full():
            whole = Full()
        case Selective(modules=modules):
            whole = Selective(modules=tuple(sorted(set(modules))))
        case _:
            whole = NoRecompute()
    same = Choice(treatments=(whole,))
    if pinned or "full" not in features.recompute or "none" not in features.recompute:
        return (same,)
    if features.recompute_mixed or features.recompute_mixed_first:
        parts = (Selective(modules=modules) for modules in _module_sets(features, layout))
        free = Choice(treatments=(NoRecompute(), *parts, Full()), rule="any" if features.recompute_mixed else "first")
    elif features.recompute_per_stage or features.recompute_first_layers:
        free = Choice(treatments=(NoRecompute(), Full()), rule="any" if features.recompute_per_stage else "first")
    else:
        return (same,)
    return (free,) if isinstance(whole, NoRecompute) else (free, same)


def _module_sets(features: Features, layout: Layout) -> tuple[tuple[str, ...], ...]:
    """What a framework that mixes treatments can run again of a layer: the layout's modules, each of its own, and all of them.

    Holds:   lightest first, the reverse of the order in which the treatments of a layout take the layers of a chunk.
    """
    if "selective" not in features.recompute or not features.selective_modules:
        return ()
    own = [layout.recompute.modules] if isinstance(layout.recompute, Selective) else []
    every = (*own, *((module,) for module in features.selective_modules), features.selective_modules)
    parts = ordered_parts((Selective(modules=modules), ((1,),)) for modules in every)
    return tuple(dict.fromkeys(treatment.modules for treatment, _ in reversed(parts) if isinstance(treatment, Selective)))


def problem_of(case: Case, features: Features, layout: Layout, choice: Choice | None = None) -> BalanceProblem:
    """The pipeline of a layout with its stages to be filled anew, in seconds and reserved bytes.

    Fragmentation is part of every tensor's bytes, context and communicators are the constant of a stage. Multi-token-prediction
    layers are part of the last end; they are treated as all layers where those have one treatment, and kept otherwise.
    ``choice`` is the freest of ``choices`` unless said. Where the framework cannot move layers, the split stays.

    Units:   s, bytes; micro-batches are whole.
    Holds:   linear in layers, so ``search.balance.memory.stage_memory`` is ``estimate.evaluate``'s, except: layers of different
             kinds that alternate are one body of their mean; full sharding of a stage that holds several kinds (an upper bound).
    Source:  ``estimate.costs``, ``estimate.stages``, ``estimate.combine``; static bytes of a layer are those of a stage with that
             layer alone.
    """
    return problems_of(case, features, [(layout, choice or choices(features, layout)[0])])[0]


def problems_of(
    case: Case, features: Features, asked: Sequence[tuple[Layout, Choice]], known: KnownWork | None = None
) -> list[BalanceProblem]:
    """The pipelines of several layouts; what layers cost is evaluated as columns.

    ``known``: what micro-batches of the case cost, as far as that was asked before; it gets to know these.

    Units:   s, bytes; micro-batches are whole.
    Source:  ``problem_of``.
    """
    known = known or KnownWork()
    groups: defaultdict[Settings, list[int]] = defaultdict(list)
    for number, (layout, _) in enumerate(asked):
        groups[structs.replace(settings_of(layout), treatments=(), schedule="")].append(number)
    found: dict[int, BalanceProblem] = {}
    for settings, members in groups.items():
        own = with_kernels(case, compiled=settings.compiled, attention=settings.attention)
        several = _inputs(own, settings, [asked[number] for number in members], known)
        static = {layout: _static(own, layout) for layout in dict.fromkeys(asked[number][0] for number in members)}
        for number, inputs in zip(members, several, strict=True):
            layout, choice = asked[number]
            found[number] = _problem(own, features, layout, choice, inputs, static[layout])
    return [found[number] for number in range(len(asked))]


def _problem(
    case: Case, features: Features, layout: Layout, chosen: Choice, inputs: StageInputs, static: _Static
) -> BalanceProblem:
    scale = float(held_bytes(case, 1.0))
    behind = case.model.mtp_kinds
    every = range(len(chosen.treatments))
    saved = np.array([[float(kind.saved_bytes[t]) for kind in inputs.kinds] for t in every])
    # A treatment of what the model has not, or keeps not, is none.
    used = [t for t in every if t == 0 or bool((saved[t] < saved[0]).any())]
    saved = saved[used]
    backward = np.array([[float(kind.backward_s + kind.again_s[t]) for kind in inputs.kinds] for t in used])
    transient = np.array([[float(kind.transient_bytes[t]) for kind in inputs.kinds] for t in used])
    gathered = np.asarray(static.gathered)
    bodies = [
        _body(name, weights, layers, inputs, backward, scale * saved, static.layer, scale * transient + gathered)
        for name, weights, layers in bodies_of(case.model)
    ]
    busy = max((scale * float(transient[0, index]) for index in behind), default=0.0)
    after = [inputs.kinds[index] for index in behind]
    last_kind = (behind or case.model.pattern)[-1]
    names = tuple(recompute_word(chosen.treatments[t]) for t in used)
    return BalanceProblem(
        stages=layout.pipeline_parallel, chunks=layout.virtual_stages, microbatches=layout.num_microbatches,
        schedule=settings_of(layout).schedule, treatments=names, bodies=tuple(bodies),
        first=End(
            forward_time=float(inputs.embedding_forward_s), backward_time=float(inputs.embedding_backward_s),
            static_memory=static.embedding,
        ),
        last=End(
            forward_time=float(inputs.head_forward_s) + sum(float(kind.forward_s) for kind in after),
            backward_time=float(inputs.head_backward_s) + sum(float(backward[0, index]) for index in behind),
            weight_time=float(inputs.head_weight_s) + sum(float(kind.weight_s) for kind in after),
            static_memory=static.head + scale * (float(inputs.before_bytes) if layout.num_microbatches > 1 else 0.0),
            activation_memory=scale * sum(float(saved[0, index]) for index in behind),
            transient_memory=max(scale * float(inputs.head_bytes), busy) + float(gathered[last_kind]),
        ),
        constant_memory=(static.constant,) * layout.pipeline_parallel,
        memory_bounds=(case.capacity_bytes,) * layout.pipeline_parallel, hop_time=float(inputs.hop_s), recompute_rule=chosen.rule,
        fixed_layers=None if features.uneven_stages else split_of(case, layout),
    )


def bodies_of(model: Model) -> tuple[tuple[str, Floats, int], ...]:
    """Name, share of each kind and number of layers of every body: the runs of a model's pattern, or one body of their mean."""
    kinds = len(model.kinds)
    runs: list[tuple[int, int]] = []
    for kind in model.pattern:
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    if len(runs) > MOST_BODIES:
        mean = np.bincount(model.pattern, minlength=kinds) / model.num_layers
        return (("layers", mean, model.num_layers),)
    names = [("mixture" if model.kinds[kind].experts else "dense") if model.is_moe else "layers" for kind, _ in runs]
    names = [name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, start=1)]
    return tuple((name, np.eye(kinds)[kind], layers) for name, (kind, layers) in zip(names, runs, strict=True))


def _body(
    name: str, share: Floats, layers: int, inputs: StageInputs, backward: Floats, saved: Floats, static: Floats, transient: Floats
) -> Body:
    """A body of layers of kinds by their share; the largest working set of them."""
    forward, weight = (np.array([float(getattr(kind, field)) for kind in inputs.kinds]) for field in ("forward_s", "weight_s"))
    return Body(
        name=name, layers=layers, forward_time=float(share @ forward), backward_times=tuple((backward @ share).tolist()),
        weight_time=float(share @ weight), static_memory=float(share @ static),
        activation_memory=tuple((saved @ share).tolist()),
        transient_memory=tuple(np.where(share > 0.0, transient, 0.0).max(axis=1).tolist()),
    )


def _inputs(case: Case, settings: Settings, asked: Sequence[tuple[Layout, Choice]], known: KnownWork) -> list[StageInputs]:
    """What stages of layouts with the same settings are made of, each under the treatments of its choice."""
    every = tuple(dict.fromkeys(each for _, choice in asked for each in choice.treatments))
    degrees = Degrees.of(columns_of([layout for layout, _ in asked]))
    found = stage_inputs(known.costs(case, structs.replace(settings, treatments=every), degrees))
    by_treatment = dict(zip(every, [under(found, number) for number in range(len(every))], strict=True))
    return [
        column(together([by_treatment[each] for each in choice.treatments]), number)
        for number, (_, choice) in enumerate(asked)
    ]


class _Static(Struct, frozen=True, kw_only=True):
    """Reserved bytes that do not depend on the micro-batch."""

    constant: float
    """Of a stage that holds nothing: context and communicators."""
    layer: Floats
    """States of one layer by kind."""
    gathered: Floats
    """What full sharding holds whole while layers of a kind run."""
    embedding: float
    head: float
    """With the multi-token-prediction layers."""


def _static(case: Case, layout: Layout) -> _Static:
    """Static bytes by difference: stages that hold nothing, one layer, the embedding, the output layer."""
    model, degrees = case.model, degrees_of(layout)
    kinds = len(model.kinds)
    folded_head = layout.schedule == "dualpipev" or layout.pipeline_parallel == 1
    counts = np.vstack([np.zeros(kinds), np.eye(kinds), np.zeros((2, kinds))])
    for index in model.mtp_kinds:
        counts[-1, index] += 1.0
    rows = kinds + 3
    embedding, head = np.zeros(rows), np.zeros(rows)
    embedding[-2], embedding[-1], head[-1] = 1.0, float(folded_head), 1.0
    stages = Composition(
        stage=np.arange(rows, dtype=np.float64), multiplicity=np.ones(rows), counts=(counts,), embedding=embedding,
        head=head,
    )
    parameters = stage_parameters(case, stages, degrees)
    state = state_costs(case, degrees, parameters, stages, offload="optimizer" in layout.offload)
    held = np.broadcast_to(static_bytes(case, state), (rows,))
    gathered = np.broadcast_to(held_bytes(case, state.gathered_bytes), (rows,))[1:-2]
    alone = held - held[0]
    return _Static(
        constant=float(held[0]), layer=alone[1:-2] - gathered, gathered=gathered, embedding=float(alone[-2]),
        head=float(alone[-1] - alone[-2] * folded_head),
    )


def layout_of(layout: Layout, problem: BalanceProblem, placement: Placement) -> Layout:
    """The layout with the stages of a placement.

    Holds:   legal for the framework that ``problem`` was made for; recomputation is the plainest value that says it.
    """
    treatments = [parse_recompute(word) for word in problem.treatments]
    layers = placement.layers
    if len(treatments) == 1:
        return replace(layout, stage_layers=layers, recompute=treatments[0])
    parts = [
        (treatment, placement.treated(index))
        for index, treatment in enumerate(treatments)
        if isinstance(treatment, (Selective, Full))
    ]
    if problem.recompute_rule == "any" and problem.last.activation_memory > 0.0:
        # Layers of multi-token prediction count as first layers of a chunk that has fewer of others.
        return replace(layout, stage_layers=layers, recompute=_counted(ordered_parts(parts)))
    return replace(layout, stage_layers=layers, recompute=mixed(parts, layers))


def _counted(parts: tuple[tuple[Selective | Full, Grid], ...]) -> Recompute:
    """Counts as they are, not said by what they have in common."""
    match parts:
        case ():
            return NoRecompute()
        case ((Full(), counts),):
            return Full(layers=counts)
        case some:
            return Mixed(parts=some)

"""Why unknowns of peaks cannot be told apart, in words, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import Message
from meshwright.search.balance.equations import CONSTANT, HEAD, PARAMETERS, TAIL, flights

if TYPE_CHECKING:
    from meshwright.search.balance.equations import Equations, Floats

HARD_CONDITION = 300.0
"""From here on an error of the peaks is blown up so much that the user should know."""


def reasons(system: Equations) -> tuple[Message, ...]:
    """Everything that keeps the unknowns from being determined; empty: nothing."""
    found = [_never(system, name) for name in system.runs.treatments if not _column(system, name).any()]
    rows, columns = system.matrix.shape
    if not found and rows < columns:
        found.append(_message(
            system, "decompose.few", "{rows} peaks for {columns} unknowns ({names}): {more} more needed, of other stages or of "
            "a round with another split", rows=rows, columns=columns, names=", ".join(map(said, system.columns)),
            more=columns - rows,
        ))
    if not found:
        found = [_dependent(system, group) for group in circuits(system)]
    return tuple(found)


def circuits(system: Equations) -> list[tuple[str, ...]]:
    """Smallest groups of columns that depend on each other, one for each rank that is missing."""
    order = [name for name in (HEAD, TAIL, CONSTANT, PARAMETERS, *system.runs.treatments) if name in system.columns]
    kept: list[str] = []
    groups = []
    for name in order:
        target = _scaled(system, name)
        if not kept:
            kept.append(name)
            continue
        basis = np.stack([_scaled(system, each) for each in kept], axis=1)
        weights, *_ = np.linalg.lstsq(basis, target, rcond=None)
        if np.linalg.norm(basis @ weights - target) > 1e-9:
            kept.append(name)
        else:
            groups.append((*(each for each, weight in zip(kept, weights, strict=True) if abs(weight) > 1e-9), name))
    return groups


def hard_to_tell(system: Equations) -> tuple[str, ...]:
    """The columns that the weakest direction of an ill-conditioned system mixes."""
    _, _, directions = np.linalg.svd(system.scaled, full_matrices=False)
    weights = np.abs(directions[-1])
    return tuple(name for name, weight in zip(system.columns, weights, strict=True) if weight > 0.3 * weights.max())


def said(name: str) -> str:
    """A column in words."""
    return {PARAMETERS: "parameters of a layer", CONSTANT: "constant of a stage", HEAD: "head", TAIL: "tail",
            "none": "activations"}.get(name, f"activations under {name} recomputation")


def treated(name: str) -> str:
    """A treatment behind the word layer."""
    return "without recomputation" if name == "none" else f"with {name} recomputation"


def _never(system: Equations, name: str) -> Message:
    return _message(system, "decompose.never", "no measured stage has a layer {treated}: give one some", treated=treated(name))


def _dependent(system: Equations, group: tuple[str, ...]) -> Message:
    runs = system.runs
    middle = [peak for peak in runs.peaks if 0 < peak.stage < runs.stages - 1]
    together = set(group)
    treatments = [name for name in runs.treatments if name in together]
    if {PARAMETERS, CONSTANT} <= together and not treatments and len({peak.layers for peak in middle}) == 1:
        return _message(system, "decompose.equal_layers", "all measured middle stages hold as many layers ({layers}), so "
                        "parameters and constant cannot be told apart: shift a layer (offset) in a dry run, or take the constant "
                        "as 0", layers=middle[0].layers)
    for end, word in ((HEAD, "first"), (TAIL, "last")):
        if end in together and len(treatments) == 1 and len(together) == 2:
            return _message(system, "decompose.only_end", "layers {treated} stand only on the {word} stage, whose own memory is "
                            "unknown: give a middle stage such a layer", treated=treated(treatments[0]), word=word)
    flying = {float(vectors.sum(axis=1).max()) for vectors in (flights(runs)[peak.stage] for peak in runs.peaks)}
    if PARAMETERS in together and treatments and len(flying) == 1:
        return _message(system, "decompose.equal_flight", "all measured stages hold as many micro-batches at once ({flying:.0f}), "
                        "so parameters and activations cannot be told apart: run more of them", flying=flying.pop())
    names = [name for name in group if name not in (HEAD, TAIL)]
    names = names if len(names) > 1 else list(group)
    if PARAMETERS in together and len({peak.stage for peak in middle}) == 1 and treatments:
        return _message(system, "decompose.one_stage", "{names} cannot be told apart while only stage {stage} of the middle stages "
                        "is measured: measure another one, which holds other micro-batches",
                        names=_listed(names), stage=middle[0].stage)
    return _message(system, "decompose.dependent", "{names} cannot be told apart, their numbers go together on all measured "
                    "stages: change one of them alone in one dry run", names=_listed(names))


def _listed(names: list[str]) -> str:
    words = [said(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _message(system: Equations, id: str, template: str, **values: object) -> Message:
    return Message(id, template, values, system.runs.source)


def _column(system: Equations, name: str) -> Floats:
    return np.asarray(system.matrix[:, system.columns.index(name)])


def _scaled(system: Equations, name: str) -> Floats:
    return np.asarray(system.scaled[:, system.columns.index(name)])

"""What one more step of each knob would do, and what better hardware would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.judging.neighbours import neighbours
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.judging.facts import Facts


class Sensitivity(Value, frozen=True, kw_only=True):
    """A legal neighbour at the same devices and global batch, or the rules that refuse it."""

    knob: str
    change: str
    """``tp 2 -> 4``."""
    label: str | None
    refused_because: tuple[str, ...]
    step_s: float | None
    step_change_ratio: float | None
    expected_change_ratio: float | None
    """The same of what plans are ranked by: the step with the risk of not fitting."""
    memory_reserved_bytes: float | None
    memory_change_bytes: float | None
    fits: bool | None


class WhatIf(Value, frozen=True, kw_only=True):
    """The same layout on other hardware or software."""

    change: str
    step_s: float
    step_change_ratio: float
    mfu_ratio: float


def sensitivities(facts: Facts) -> tuple[Sensitivity, ...]:
    """Every single step, knob by knob."""
    found: list[Sensitivity] = []
    steps = [
        (each, each.layout if each.layout is None or each.knob == "overlap" else facts.own(each.layout))
        for each in neighbours(facts.case, facts.features, facts.layout)
    ]
    facts.know(layout for _, layout in steps if layout is not None and not facts.refusals(layout))
    for each, layout in steps:
        refused = each.refused_because if layout is None else facts.refusals(layout)
        if layout is None or refused:
            found.append(
                Sensitivity(
                    knob=each.knob,
                    change=each.change,
                    label=None,
                    refused_because=refused,
                    step_s=None,
                    step_change_ratio=None,
                    expected_change_ratio=None,
                    memory_reserved_bytes=None,
                    memory_change_bytes=None,
                    fits=None,
                )
            )
            continue
        trial = facts.trial(layout)
        found.append(
            Sensitivity(
                knob=each.knob,
                change=each.change,
                label=facts.label(layout),
                refused_because=(),
                step_s=trial.step_s,
                step_change_ratio=trial.step_s / facts.step_s - 1.0,
                expected_change_ratio=trial.expected_step_s / facts.estimate.expected_step_s - 1.0,
                memory_reserved_bytes=trial.reserved_bytes,
                memory_change_bytes=trial.reserved_bytes - facts.estimate.memory_reserved_bytes,
                fits=trial.estimate.fits,
            )
        )
    return tuple(found)


def what_ifs(facts: Facts) -> tuple[WhatIf, ...]:
    """A quarter more network, a quarter more scale-up bandwidth, CUDA graphs: the step of the same layout."""
    found: list[WhatIf] = []
    for change, case in _cases(facts.case):
        trial = facts.trial(facts.layout, case)
        found.append(
            WhatIf(
                change=change,
                step_s=trial.step_s,
                step_change_ratio=trial.step_s / facts.step_s - 1.0,
                mfu_ratio=trial.estimate.mfu_ratio,
            )
        )
    return tuple(found)


def _cases(case: Case) -> Iterator[tuple[str, Case]]:
    cluster = case.cluster
    faster = replace(cluster.network, bytes_per_s=1.25 * cluster.network.bytes_per_s)
    yield "network bandwidth +25 %", replace(case, cluster=replace(cluster, network=faster))
    faster = replace(cluster.scale_up, bytes_per_s=1.25 * cluster.scale_up.bytes_per_s)
    yield "scale-up bandwidth +25 %", replace(case, cluster=replace(cluster, scale_up=faster))
    if not case.implementation.cuda_graphs:
        yield "CUDA graphs (launches from a graph)", replace(case, implementation=replace(case.implementation, cuda_graphs=True))
    memory = 1.25 * cluster.device.memory_bytes_per_s
    yield (
        "memory bandwidth +25 %",
        replace(case, cluster=replace(cluster, device=replace(cluster.device, memory_bytes_per_s=memory))),
    )

"""Which cap of a pack is best: a few are tried, each by the plans that it has."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from meshwright.domain.estimate import Infeasible
from meshwright.errors import InputError, NoAnswerError
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.api.cases import Setup
    from meshwright.api.fields import Values
    from meshwright.api.packs import Samples
    from meshwright.search.result import PlanResult

TIMES = (1, 2, 4, 8)
"""Caps of a pack that are tried, in longest samples, with every number of packs that replicas may share."""
BETWEEN = (1.25, 1.5, 2.5, 3)
"""Caps between these, as multiples of ``ALIGNED`` tokens, with the fewest packs alone: samples that are half as long as the longest
fill 1.25 of it better than once or twice."""


class Tried(Value, frozen=True, kw_only=True):
    """A cap and a number of packs with the expected step of their best plan; None where nothing fits."""

    max_tokens: int
    packs: int
    step_s: float | None


def any_packs(given: Setup, values: Values) -> bool:
    """Whether the cap of the packs of a number of samples, or how many packs there are, is to be searched."""
    return given.samples is not None and "global_batch" in values and not {"max_tokens", "packs"} <= set(values)


def best_packs(given: Setup, searched: Callable[[Setup], PlanResult]) -> tuple[Setup, PlanResult, tuple[Tried, ...]]:
    """The case under the cap whose first plan has the shortest expected step, its plans, and what was tried.

    All have the same samples in a step, so that their steps compare. Where nothing fits under any cap, the smallest stands.
    ``max_tokens`` and ``packs`` of the request are kept where they are given.

    Errors:  ``InputError`` where no cap has a legal layout, ``NoAnswerError`` where the framework runs none of those that fit: with
             what is wrong under the smallest cap.
    """
    found: list[tuple[float, Setup, PlanResult]] = []
    wrong: list[InputError | NoAnswerError] = []
    for cap, packs in ways(given):
        packed = given.packed(cap, packs)
        try:
            result = searched(packed)
        except (InputError, NoAnswerError) as error:
            wrong.append(error)
        else:
            found.append((_expected_s(result), packed, result))
    if not found:
        raise wrong[0]
    _, best, result = min(found, key=lambda each: each[0])
    tried = (
        Tried(max_tokens=own.sequence_tokens, packs=own.global_batch_sequences, step_s=step if step < inf else None)
        for step, own in ((step, each.case.batch) for step, each, _ in found)
    )
    return best, result, tuple(tried)


def ways(given: Setup) -> tuple[tuple[int, int], ...]:
    """Caps of a pack and numbers of packs that are tried, the smallest cap first; the same whatever the cluster."""
    from meshwright.api.packs import ALIGNED  # a plan of texts that are no samples asks ``any_packs`` alone

    assert given.samples is not None, "only samples are packed"
    samples, batch = given.samples, given.request["global_batch"]
    longest = samples.longest_tokens
    caps = [given.request["max_tokens"]] if "max_tokens" in given.request else [times * longest for times in TIMES]
    found = [(most, packs) for most in caps for packs in _counts(given, samples, batch, most)]
    if "max_tokens" not in given.request:
        between = {ceil(times * longest / ALIGNED) * ALIGNED for times in BETWEEN} - set(caps)
        found += [(most, _counts(given, samples, batch, most)[0]) for most in between]
    return tuple(sorted(found))


def _counts(given: Setup, samples: Samples, num_samples: int, max_tokens: int) -> tuple[int, ...]:
    """Numbers of packs to try under a cap: the one that was asked for, else those that replicas share well."""
    from meshwright.api.packs import pack_counts

    packs: int | None = given.request.get("packs")
    return pack_counts(samples, num_samples, max_tokens) if packs is None else (packs,)


def _expected_s(result: PlanResult) -> float:
    """The first plan's step with the risk that it does not fit; infinite where nothing fits."""
    return result.plans[0].estimate.expected_step_s if result.plans and not isinstance(result.verdict, Infeasible) else inf

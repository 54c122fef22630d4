"""The figures of an estimate beside its step time, each with the function that gave it: two steps from a number to its formula."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from meshwright.domain.estimate import Term

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.domain.estimate import Estimate, Grade

STATES, TRANSIENT = "perf.states.training_states", "estimate.memory.stage_memory"
_MEMORY = {
    "parameters": STATES, "gradients": STATES, "optimizer": STATES, "activations": "estimate.memory.activation_memory",
    "temporary": TRANSIENT, "overhead": TRANSIENT,
}
"""Part of a stage's memory -> its formula."""


def figures(estimate: Estimate) -> Mapping[str, tuple[Term, ...]]:
    """Every figure that is printed of an estimate, by title: the step's terms, memory, host memory, speed and ratios.

    Units:   bytes, seconds, rates and ratios, as each term says.
    Source:  the estimate itself; nothing is computed anew but sums and quotients of its fields.
    """
    return {
        "Step time": estimate.terms,
        f"Memory of stage {estimate.peak_stage}, the fullest": tuple(_memory(estimate)),
        "Host memory of a node": (
            *_host(estimate),
        ),
        "Speed and ratios": tuple(_ratios(estimate)),
    }


def _memory(estimate: Estimate) -> Iterator[Term]:
    """The parts of the fullest stage, what they sum to, and what bounds them."""
    grade = (estimate.grades or {}).get("memory", "analytic")
    memory = next(stage.memory for stage in estimate.stages if stage.stage == estimate.peak_stage)
    for name, formula in _MEMORY.items():
        yield _term(name, getattr(memory, name), "bytes", formula, grade)
    yield _term("allocated peak", estimate.memory_peak_bytes, "bytes", TRANSIENT, grade)
    yield _term("reserved", estimate.memory_reserved_bytes, "bytes", TRANSIENT, grade)
    yield _term("upper end", estimate.memory_upper_bytes, "bytes", "estimate.single.upper_bytes", grade)
    yield _term("usable of a device", estimate.memory_capacity_bytes, "bytes", "domain.case.Case.capacity_bytes")
    yield _term("probability that it fits", estimate.memory_fit_probability, "",
                "domain.uncertainty.FitCurve.memory_probability", grade)


def _host(estimate: Estimate) -> Iterator[Term]:
    """The parts of a node's host memory, and their sum."""
    formula = "estimate.host_memory.host_memory"
    parts = estimate.host_memory_bytes
    for name in () if parts is None else (each.name for each in fields(parts)):
        yield _term(f"host memory, {name}", getattr(parts, name), "bytes", formula)
    yield _term("host memory", estimate.host_memory_per_node_bytes, "bytes", formula)


def _ratios(estimate: Estimate) -> Iterator[Term]:
    """Rates and ratios of the step."""
    grade = (estimate.grades or {}).get("step_s", "analytic")
    bubbles = [term.formula for term in estimate.terms if term.name == "pipeline bubble"]
    yield _term("tokens/s", estimate.tokens_per_s, "tokens/s", "estimate.single.estimate", grade)
    yield _term("effective tokens/s of a device", estimate.effective_tokens_per_s_per_device, "tokens/s",
                "domain.estimate.Estimate.effective_tokens_per_s_per_device", grade)
    yield _term("model FLOP/s of a device", estimate.model_flops_per_s_per_device, "FLOP/s", "estimate.single.model_flops", grade)
    yield _term("MFU", estimate.mfu_ratio, "", "estimate.single.model_flops", grade)
    yield _term("HFU", estimate.hfu_ratio, "", "estimate.single.recompute_flops", grade)
    yield from (Term(name="bubble", value=estimate.bubble_ratio, unit="", formula=bubble, grade=grade) for bubble in bubbles)
    yield _term("bubble by the formula", estimate.bubble_formula_ratio, "", "perf.schedules.even.even_bubble_ratio")
    if estimate.linearity_ratio is not None:
        yield _term("linearity", estimate.linearity_ratio, "", "search.linearity.linearity_of", grade)
    if estimate.interval is not None:
        for name, ends in (("step_s", estimate.interval.step_s), ("memory_peak_bytes", estimate.interval.memory_peak_bytes)):
            unit = "s" if name == "step_s" else "bytes"
            for word, value in zip(("low", "high"), ends, strict=True):
                yield _term(f"{name}, {word} end of the interval", value, unit, "estimate.certainty.interval")


def _term(name: str, value: float, unit: str, formula: str, grade: Grade = "analytic") -> Term:
    """A term by the short name of its formula."""
    return Term(name=name, value=float(value), unit=unit, formula=f"meshwright.{formula}", grade=grade)

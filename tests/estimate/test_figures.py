"""Every printed number leads to its formula in two steps: ``--terms`` names a function, which says equation and source."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from meshwright import cluster_for, make_case, parse_layout
from meshwright.estimate import estimate
from meshwright.estimate.figures import figures
from meshwright.perf.schedules import SCHEDULES
from meshwright.search import linearity_of


def resolved(name: str):
    """A dotted name as what it names: the longest module, then attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def predicted(model: str, label: str, framework: str = "megatron", nodes: int = 2):
    cluster = cluster_for("h100-sxm", nodes=nodes)
    case = make_case(model, cluster, global_batch_sequences=64, sequence_tokens=4096, framework=framework)
    layout = parse_layout(
        label, num_devices=cluster.num_devices, global_batch_sequences=64, devices_per_node=8, model=case.model
    )
    return case, estimate(case, layout)


@pytest.mark.parametrize(
    ("model", "label", "framework"),
    [
        ("llama3-8b", "tp2 pp2 mb1 sp zero1", "megatron"), ("llama3-8b", "tp2 pp4 vp2 mb1 zero1 layers=[9,8,8,7]", "megatron"),
        ("llama3-8b", "dp16 mb1 zero3", "torchtitan"), ("mixtral-8x7b", "tp2 pp2 ep4 mb1 sp zero1", "megatron"),
        ("llama3-8b", "tp2 pp2 mb1 zero1", "nanotron"),
    ],
)
def test_every_term_names_a_function_that_says_its_formula(model, label, framework):
    _, found = predicted(model, label, framework)
    groups = figures(found)
    assert groups["Step time"] == found.terms
    for terms in groups.values():
        assert terms
        for term in terms:
            formula = resolved(term.formula)
            formula = formula.fget if isinstance(formula, property) else formula
            assert inspect.isfunction(formula), term.formula
            assert inspect.getdoc(formula), term.formula


def test_closed_forms_of_every_schedule_can_be_named():
    for schedule in SCHEDULES.values():
        assert resolved(f"{schedule.bubble_s.__module__}.{schedule.bubble_s.__qualname__}") is schedule.bubble_s


def test_figures_are_those_of_the_estimate_and_memory_sums_up():
    case, found = predicted("llama3-8b", "tp2 pp2 mb1 sp zero1")
    from meshwright.frameworks import framework

    found = linearity_of(case, framework("megatron").for_case(case).features, found)
    values = {term.name: term.value for terms in figures(found).values() for term in terms}
    parts = ("parameters", "gradients", "optimizer", "activations", "temporary")
    assert sum(values[name] for name in parts) == pytest.approx(values["allocated peak"])
    assert values["allocated peak"] + values["overhead"] == pytest.approx(values["reserved"])
    assert values["pipeline bubble"] / found.step_s == pytest.approx(values["bubble"])
    assert values["linearity"] == found.linearity_ratio
    assert values["host memory"] == found.host_memory_per_node_bytes


def test_an_unequal_pipeline_names_the_simulation():
    _, even = predicted("llama3-8b", "tp2 pp2 mb1 sp zero1")
    _, uneven = predicted("llama3-8b", "tp2 pp4 mb1 zero1 layers=[9,8,8,7]")
    formula = {name: next(term.formula for term in found.terms if term.name == "pipeline bubble")
               for name, found in (("even", even), ("uneven", uneven))}
    assert formula["uneven"].endswith("simulated_bubble_s")

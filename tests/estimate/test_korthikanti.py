"""Activation memory and states of Korthikanti et al. 2022, for their four models and five ways of recomputation."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from meshwright.domain.layout import Full, Layout, NoRecompute, Selective
from meshwright.estimate import Evaluation, evaluate
from meshwright.perf.operators import layer_products, work_shape
from meshwright.units import GIB
from strategies import small_case

GOLDEN = tomllib.loads((Path(__file__).parents[1] / "golden" / "korthikanti-2022.toml").read_text())
MODELS = [name for name in GOLDEN if name.startswith("megatron")]
WAYS = {
    "none": (False, NoRecompute()),
    "sequence_parallel": (True, NoRecompute()),
    "selective": (False, Selective()),
    "both": (True, Selective()),
    "full": (False, Full()),
}


def _evaluated(name: str, way: str) -> Evaluation:
    row = GOLDEN[name]
    batch = row["microbatch"] * row["pipeline"] * 4
    case = small_case(
        name, "a100-80g-sxm", devices=row["tensor"] * row["pipeline"], batch=batch, sequence=2048, implementation="megatron-2022"
    )
    sequence_parallel, recompute = WAYS[way]
    layout = Layout(
        tensor_parallel=row["tensor"],
        sequence_parallel=sequence_parallel,
        pipeline_parallel=row["pipeline"],
        virtual_stages=row["virtual"],
        schedule="interleaved" if row["virtual"] > 1 else "1f1b",
        microbatch_sequences=row["microbatch"],
        num_microbatches=batch // row["microbatch"],
        recompute=recompute,
    )
    return evaluate(case, layout)


def _activations(name: str, way: str) -> float:
    return float(_evaluated(name, way).memory.activations[0])


@pytest.mark.parametrize("way", ["none", "both"])
@pytest.mark.parametrize("name", MODELS)
def test_activations_of_the_first_stage_are_those_of_the_paper(name, way):
    assert _activations(name, way) / GIB == pytest.approx(GOLDEN[name]["activations_gib"][way], rel=GOLDEN["tolerance"])


@pytest.mark.parametrize("way", ["sequence_parallel", "selective", "both", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_activations_relative_to_no_recompute_are_those_of_the_paper(name, way):
    ratio = _activations(name, way) / _activations(name, "none")
    assert ratio == pytest.approx(GOLDEN[name]["relative"][way], rel=GOLDEN["tolerance"])


@pytest.mark.parametrize("name", MODELS)
def test_activations_are_exactly_the_closed_formula(name):
    """s b h L (10 + 24/t + 5 a s / (h t)) (1 + (p-1)/(p v)) on the first stage, where v > 1; else p stages of L / p."""
    row, evaluation = GOLDEN[name], _evaluated(name, "none")
    case = small_case(name, "a100-80g-sxm", devices=8, implementation="megatron-2022")
    h, a, s, t = case.model.hidden, case.model.attention.num_heads, 2048, row["tensor"]
    p, v = row["pipeline"], row["virtual"]
    per_layer = s * row["microbatch"] * h * (10 + 24 / t + 5 * a * s / (h * t))
    held = (1 + (p - 1) / (p * v)) if v > 1 else 1.0
    assert float(evaluation.memory.activations[0]) == pytest.approx(per_layer * case.model.num_layers * held, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_optimizer_of_the_layers_take_eighteen_bytes(name):
    """The paper counts the layers' matrices: BF16 weight, FP32 gradient, master copy and two moments."""
    row, evaluation = GOLDEN[name], _evaluated(name, "none")
    states, stage = evaluation.state.states, evaluation.parameters.dense[1 if row["pipeline"] > 1 else 0]
    index = 1 if row["pipeline"] > 1 else 0
    size = (states.parameter_bytes + states.gradient_bytes + states.optimizer_bytes)[index] / stage
    assert float(size) == pytest.approx(18.0, rel=1e-12)
    case = small_case(name, devices=8)
    shape = work_shape(microbatch_sequences=1, sequence_tokens=2048, tensor_parallel=row["tensor"])
    matrices = sum(float(each.inner * each.columns) for each in layer_products(case.model.kinds[0], case.model.hidden, shape))
    layers = case.model.num_layers / row["pipeline"]
    assert 18.0 * matrices * layers / GIB == pytest.approx(row["states_gib"], rel=0.002 if name != "megatron-1t" else 0.02)

"""One multi-token-prediction layer that is run for several further tokens: parameters once, work and memory each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog import load_model
from meshwright.domain.label import parse_layout
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.perf.flops import sequence_flops, training_flops
from meshwright.perf.parameters import total_parameters
from strategies import small_case

SEQUENCE = 8192
NANO, LIGHTNING, SUPER = "nemotron-3-nano-30b-a3b", "nemotron-3.5-lightning", "nemotron-3-super-120b-a12b"


def per_token(name: str, *, passes: int) -> float:
    model = load_model(name)
    model = replace(model, num_mtp_layers=min(passes, 1), num_mtp_passes=passes)
    flops = training_flops(sequence_flops(model, SEQUENCE, convention="causal")) / SEQUENCE
    return flops - passes * 3.0 * 4.0 * model.hidden**2  # the source leaves out the projection of hidden state and embedding


def test_both_runs_are_work_as_the_source_counts_it() -> None:
    """Megatron-Bridge prints 28.15 GFLOP a token of the model with two runs, and 22.28 of the same layers without any."""
    assert load_model(LIGHTNING).mtp_passes == load_model(SUPER).mtp_passes == 2
    assert per_token(LIGHTNING, passes=2) - per_token(NANO, passes=0) == pytest.approx(28.15e9 - 22.28e9, rel=0.01)


def test_parameters_are_held_once_and_everything_else_is_as_of_two_layers() -> None:
    base = small_case("deepseek-v3", layers=4, devices=8, batch=16)
    shared, apart = (
        replace(base, model=replace(base.model, **fields)) for fields in ({"num_mtp_passes": 2}, {"num_mtp_layers": 2})
    )
    assert total_parameters(shared.model, mtp=True) == total_parameters(base.model, mtp=True)
    layout = parse_layout("tp1 pp2 ep4 dp4 mb1 zero1", num_devices=8, global_batch_sequences=16)
    once, twice, two = (estimate(case, layout) for case in (base, shared, apart))
    assert twice.stages[-1].parameters == once.stages[-1].parameters < two.stages[-1].parameters
    assert twice.stages[-1].forward_s == pytest.approx(two.stages[-1].forward_s, rel=1e-12)
    assert twice.stages[-1].memory.activations == pytest.approx(two.stages[-1].memory.activations, rel=1e-12)
    assert twice.stages[-1].memory.activations > once.stages[-1].memory.activations


def test_several_layers_are_not_shared() -> None:
    with pytest.raises(InputError, match="num_mtp_passes=3 with 2 layers"):
        replace(load_model("deepseek-v3"), num_mtp_layers=2, num_mtp_passes=3)

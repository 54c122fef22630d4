"""What mixes tokens is named for what it is: attention, recurrences, or both in one layer."""

from __future__ import annotations

import pytest

import meshwright as mw


def terms(model: str) -> dict[str, float]:
    request = mw.EstimateRequest(model=model, device="h100-sxm", nodes=1, global_batch=64, sequence=4096, layout="dp8 mb1 zero3")
    return {term.name: term.value for term in mw.estimate(request).estimate.terms}


@pytest.mark.parametrize(("model", "names"), [
    ("llama3-8b", {"attention below peak"}), ("nemotron-h-4b", {"attention below peak", "recurrences below peak"}),
    ("qwen3.5-4b", {"attention below peak", "recurrences below peak"}),
    ("falcon-h1-3b", {"attention and recurrences below peak"}),
])
def test_terms_name_what_mixes(model: str, names: set[str]) -> None:
    found = {name for name in terms(model) if "attention" in name or "recurrences" in name}
    assert found == names


def test_terms_still_sum_to_the_step() -> None:
    request = mw.EstimateRequest(model="nemotron-h-4b", device="h100-sxm", nodes=1, global_batch=64, sequence=4096,
                                 layout="dp8 mb1 zero3")
    said = mw.estimate(request).estimate
    assert sum(term.value for term in said.terms) == pytest.approx(said.step_s, rel=1e-9)

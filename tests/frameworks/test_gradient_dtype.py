"""Gradients of any type: a framework that cannot hold them refuses them, and what it writes for those it can is read as that."""

from __future__ import annotations

import random

import pytest

from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.api.legality import never_trains
from meshwright.frameworks import framework, frameworks
from meshwright.testing.plans import draw_layout, is_legal
from meshwright.testing.promises import read_back

CASE = {"nodes": 2, "global_batch": 64, "sequence": 4096}
TRIES = 200
"""Layouts that are drawn until the framework runs one."""
BY_PROGRAM = ("accelerate", "deepspeed", "megatron-deepspeed")
"""Where no key says it at every stage of ZeRO: the program, or the stage itself, decides."""


@pytest.mark.parametrize("gradients", ["fp32", "bf16"])
@pytest.mark.parametrize("name", frameworks())
def test_gradients_are_refused_or_read_back(name, gradients):
    named = framework(name)
    if named.writer is None:
        pytest.skip("writes no files")
    device = "ascend-910b" if name.startswith("mind") else "h100"
    model = "qwen3-8b" if name == "chatlearn" else "llama3-8b"
    said = {**CASE, "model": model, "device": device, "gradient_dtype": gradients, "framework": name}
    given = setup(said, Faults(), runs=False)
    if refused := never_trains(given):
        assert gradients == "bf16", refused
        assert any("gradients" in str(each) for each in refused)
        return
    case, rng = given.case, random.Random(3)
    drawn = (draw_layout(case, named.features, rng.choice) for _ in range(TRIES))
    layout = next(each for each in drawn if is_legal(named, case, each))
    said = read_back(named, case, named.write(case, layout)).said.gradient_dtype
    if name in BY_PROGRAM:
        assert said in {None, gradients}
    else:  # silent files are of what every run has
        assert (said or case.implementation.gradient_dtype) == gradients


@pytest.mark.parametrize("release", ["0.2", "0.3", "main"])
def test_torchtitan_reduces_in_float32_alone(release):
    """job_config.py:290 of 0.2.2 and configs.py:93 of 0.3.0: ``mixed_precision_reduce: Literal["float32"]``."""
    for gradients, refused in (("fp32", []), ("bf16", ["torchtitan.gradients"])):
        values = {"model": "llama3-8b", "cluster": "dgx-h100", "global_batch": 64, "sequence": 4096,
                  "gradient_dtype": gradients, "framework": f"torchtitan@{release}"}
        assert [each.id for each in never_trains(setup(values, Faults(), runs=False))] == refused

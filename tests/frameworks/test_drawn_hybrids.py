"""Hybrids of any pattern on any mesh: stages hold the model's parameters, files say the layout again, or one line says why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from megatron_cases import case_of, layout_of

from meshwright.check.figures import figures_of, same
from meshwright.domain.model import Model
from meshwright.estimate import estimate
from meshwright.frameworks import framework
from meshwright.frameworks.settings import Given
from meshwright.perf.parameters import total_parameters
from meshwright.readers.hf_config import model_from_config
from strategies import examples

TARGETS = ("megatron@0.13", "megatron@0.16", "megatron@0.17", "megatron@0.19", "megatron@main", "bridge@0.3", "bridge@main",
           "torchtitan", "accelerate")
ROWS = 4096
"""Rows of a vocabulary that no tensor parallelism pads."""


@st.composite
def hybrids(draw: st.DrawFn) -> Model:
    """A Nemotron of any letters, a Granite of mixers with blocks, or a Falcon with attention beside its mixers."""
    heads, layers = draw(st.sampled_from((8, 16, 32))), draw(st.integers(2, 14))
    config: dict[str, Any] = {
        "vocab_size": ROWS, "hidden_size": 512, "num_attention_heads": heads, "head_dim": 64,
        "num_key_value_heads": draw(st.sampled_from((2, 4, 8))), "intermediate_size": 1024, "max_position_embeddings": 4096,
        "tie_word_embeddings": draw(st.booleans()), "num_hidden_layers": layers,
    }
    family = draw(st.sampled_from(("nemotron", "nemotron", "nemotron", "granite", "falcon")))
    if family == "nemotron":
        letters = draw(st.text(alphabet="M*-E", min_size=layers, max_size=layers))
        config |= {
            "architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": letters, "mamba_num_heads": 16,
            "mamba_head_dim": 64, "ssm_state_size": 64, "n_groups": draw(st.sampled_from((1, 2, 8))), "n_routed_experts": 8,
            "num_experts_per_tok": 2, "moe_intermediate_size": 256, "moe_shared_expert_intermediate_size": 512,
            "moe_latent_size": draw(st.sampled_from((None, 128))), "num_nextn_predict_layers": draw(st.sampled_from((0, 0, 1))),
        }
    elif family == "granite":
        config |= {
            "architectures": ["GraniteMoeHybridForCausalLM"], "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_expand": 2,
            "mamba_d_state": 64, "mamba_n_groups": draw(st.sampled_from((1, 8))), "num_local_experts": 8, "num_experts_per_tok": 2,
            "shared_intermediate_size": 512,
            "layer_types": draw(st.lists(st.sampled_from(("mamba", "attention")), min_size=layers, max_size=layers)),
        }
    else:
        config |= {
            "architectures": ["FalconH1ForCausalLM"], "mamba_d_ssm": 1024, "mamba_n_heads": 16, "mamba_d_head": 64,
            "mamba_d_state": 64, "mamba_n_groups": 1,
        }
    model = model_from_config({key: value for key, value in config.items() if value is not None}, where="config.json")
    return replace(model, name="drawn", num_mtp_passes=2 * draw(st.booleans()) if model.num_mtp_layers else 0)


@st.composite
def meshes(draw: st.DrawFn) -> dict[str, Any]:
    tp = draw(st.sampled_from((1, 1, 2, 4)))
    pp = draw(st.sampled_from((1, 1, 2, 4)))
    return {
        "tensor_parallel": tp, "sequence_parallel": tp > 1, "context_parallel": draw(st.sampled_from((1, 1, 1, 2))),
        "pipeline_parallel": pp, "virtual_stages": draw(st.sampled_from((1, 1, 2))) if pp > 1 else 1,
        "expert_parallel": draw(st.sampled_from((1, 2, 8))),
    }


@examples(60)
@given(hybrids(), st.sampled_from((1, 2, 4)), st.booleans())
def test_stages_hold_the_parameters_of_the_model(model: Model, stages: int, passes: bool) -> None:
    model = replace(model, num_mtp_passes=2 * passes if model.num_mtp_layers else 0)
    case = replace(case_of("nemotron-3-nano-30b-a3b"), model=model)
    layout = layout_of(case, pipeline_parallel=stages)
    found = estimate(case, layout)
    copied = stages > 1 and (model.tied_embeddings or model.num_mtp_layers > 0)
    assert sum(stage.parameters for stage in found.stages) == total_parameters(model, mtp=True) + copied * ROWS * model.hidden
    assert sum(stage.layers for stage in found.stages) == model.num_layers + len(model.mtp_kinds)


@pytest.mark.parametrize("target", TARGETS)
@examples(45)
@given(model=hybrids(), knobs=meshes())
def test_files_say_the_layout_again_or_one_line_says_why_not(target: str, model: Model, knobs: dict[str, Any]) -> None:
    there = framework(target)
    case = replace(case_of("nemotron-3-nano-30b-a3b"), model=model)
    layout = layout_of(case, **(knobs if model.is_moe else {**knobs, "expert_parallel": 1}))
    refused = there.check(case, layout)
    for message in refused:
        assert "\n" not in str(message)
        assert message.id != "framework.parts" or "--framework" in str(message) or "no framework here can" in str(message)
    if refused:
        return
    files = [file for file in there.write(case, layout) if file.path in {"train.sh", "train.py", "launch.sh", "accelerate.yaml"}]
    reading = there.read(files, version=there.version, given=Given(model=model, num_devices=64))
    assert reading.messages == ()
    assert reading.layout is not None
    assert there.normal(case, reading.layout) == there.normal(case, layout)
    known = figures_of(model)
    wrong = {name: (value, known[name]) for name, value in reading.said.figures.items()
             if name in known and not same(name, value, known[name], layout.tensor_parallel)}
    assert not wrong



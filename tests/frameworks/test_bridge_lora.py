"""Adapters in files of Megatron-Bridge: the modules that carry them come back as the projections that were planned."""

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.domain.training import Lora
from meshwright.frameworks import framework
from meshwright.frameworks.bridge.adapters import DENSE_BLOCKS, modules_of
from meshwright.testing.promises import read_back

ATTENTION = ("query", "key", "value", "output")


@pytest.mark.parametrize("targets", [(*ATTENTION, "mlp"), ATTENTION, ("query", "key", "value"), ("output", "mlp"), ("mlp",)])
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b", "glm-4.5-air", "deepseek-v2-lite", "deepseek-v3"])
@pytest.mark.parametrize("release", ["0.3", "main"])
def test_adapters_come_back_on_the_projections_that_they_went_out_on(release, model, targets):
    runner = framework(f"bridge@{release}")
    case = make_case(model, cluster_for("h100-sxm", num_devices=8), global_batch_sequences=64, sequence_tokens=4096,
                     framework=f"bridge@{release}", task="lora")
    case = replace(case, training=replace(case.training, lora=Lora(rank=8, targets=targets)))
    reading = read_back(runner, case, runner.write(case, Layout(data_parallel=8, num_microbatches=8)))
    assert reading.said.lora == case.training.lora
    assert not reading.messages


def test_experts_carry_none():
    """``*.mlp.linear_fc1`` is no ``decoder.layers.1.mlp.experts.linear_fc1``, and latent attention has modules of its own."""
    models = {name: make_case(name, cluster_for("h100-sxm", num_devices=8), global_batch_sequences=8, sequence_tokens=128).model
              for name in ("llama3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3")}
    written = {name: modules_of(Lora(), model) for name, model in models.items()}
    assert written["llama3-8b"] == ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    assert written["qwen3-30b-a3b"] == ["linear_qkv", "linear_proj", *DENSE_BLOCKS]
    latent = ["linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"]
    assert written["deepseek-v2-lite"] == [*latent, *DENSE_BLOCKS]
    assert written["deepseek-v3"][:2] == ["linear_q_down_proj", "linear_q_up_proj"]

"""Where a framework keeps optimizer states in host memory: what the search takes for legal is what the framework accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.launch import parse_launch
from meshwright.domain.launching import launched
from meshwright.domain.layout import Full, Layout
from meshwright.frameworks import framework, frameworks
from meshwright.search import layout_refusals
from meshwright.testing.promises import read_back


@pytest.mark.parametrize("name", frameworks())
def test_zero_stages_with_offload_are_those_that_the_framework_accepts(name):
    ascend = name.startswith(("mind", "ascend"))
    case = make_case(
        "llama2-7b", cluster_for("ascend-910b" if ascend else "h100-sxm", num_devices=16), global_batch_sequences=64,
        sequence_tokens=4096, framework=name,
    )
    runner = framework(name).for_case(case)
    for stage in runner.features.zero_stages:
        shards = [16 if stage >= least else 1 for least in (1, 2, 3)]
        plain = Layout(
            data_parallel=16, num_microbatches=4, optimizer_shards=shards[0], gradient_shards=shards[1], parameter_shards=shards[2]
        )
        plain = replace(plain, overlap=runner.overlap(case, plain))
        moved = replace(plain, offload=("optimizer",))
        added = set(map(str, runner.check(case, moved))) - set(map(str, runner.check(case, plain)))
        legal = not set(layout_refusals(case, runner.features, moved)) - set(layout_refusals(case, runner.features, plain))
        assert legal == (runner.features.optimizer_offload and not added), (stage, added)


@pytest.mark.parametrize("name", ["megatron", "bridge"])
@pytest.mark.parametrize("words", ["offload_layers=8", "offload_modules=moe_act+expert_fc1", "offload_modules=core_attn+attn_proj"])
def test_what_activations_do_on_the_host_is_written_and_read_back(name, words):
    case = make_case("qwen3-30b-a3b", cluster_for("h100-sxm", num_devices=16), global_batch_sequences=64, sequence_tokens=4096,
                     framework=name)
    settings, runner = parse_launch(words), framework(name)
    layout = Layout(expert_parallel=16, data_parallel=16, num_microbatches=4, optimizer_shards=16)
    layout = replace(layout, overlap=runner.overlap(case, layout))
    plain, moved = (read_back(runner, each, runner.write(each, layout)).said.launch for each in (case, launched(case, settings)))
    assert settings.items() <= parse_launch(moved or "").items()
    assert not settings.keys() & parse_launch(plain or "").keys()


@pytest.mark.parametrize(("words", "layout", "reason"), [
    ("offload_layers=4", Layout(pipeline_parallel=2, data_parallel=8, num_microbatches=8), "without pipeline parallelism"),
    ("offload_layers=4", Layout(data_parallel=16, num_microbatches=4, recompute=Full()), "where nothing is recomputed"),
    ("offload_layers=32", Layout(data_parallel=16, num_microbatches=4), "every layer would be offloaded"),
    ("checkpoints=host", Layout(data_parallel=16, num_microbatches=4, recompute=Full()), "as the launch says"),
])
def test_activations_that_megatron_cannot_move_are_refused(words, layout, reason):
    case = make_case("llama2-7b", cluster_for("h100-sxm", num_devices=16), global_batch_sequences=64, sequence_tokens=4096)
    moved, features = launched(case, parse_launch(words)), framework("megatron").features
    assert any(reason in each for each in layout_refusals(moved, features, layout))
    assert not any(reason in each for each in layout_refusals(case, features, layout))

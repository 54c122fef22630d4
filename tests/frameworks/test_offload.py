"""Where a framework keeps optimizer states in host memory: what the search takes for legal is what the framework accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.frameworks import framework, frameworks
from meshwright.search import layout_refusals


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

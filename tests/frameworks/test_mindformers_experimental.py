"""MindFormers' experimental core, whose keys are those of MindSpeed-Core-MS r0.1.0 but for the kind of context parallelism."""

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.frameworks import framework
from meshwright.testing.promises import read_back


def planned(words):
    case = make_case("llama2-7b", cluster_for("ascend-910b", num_devices=16), global_batch_sequences=32, sequence_tokens=4096,
                     framework=words)
    return framework(words), case, Layout(tensor_parallel=2, context_parallel=2, data_parallel=4, num_microbatches=8,
                                          sequence_parallel=True)


@pytest.mark.parametrize("words", ["mindformers@experimental", "mindformers@graph", "mindformers@2.1", "mindspeed-core-ms@r0.1.0"])
def test_every_key_of_context_parallelism_is_one_of_the_release(words):
    runner, case, layout = planned(words)
    for kind in runner.features.context_kinds:
        asked = runner.normal(case, replace(layout, context_kind=kind))
        if runner.check(case, asked):  # hybrids need more ranks
            continue
        reading = read_back(runner, case, runner.write(case, asked))
        assert not reading.messages and reading.layout.context_kind == kind
        unknown = [key for key in reading.source.settings if "context_parallel" in key or "ulysses" in key
                   if runner.surface().find(key, runner.version) is None]
        assert not unknown


def test_all_of_it_is_a_ring_there():
    runner, case, layout = planned("mindformers@experimental")
    assert runner.features.context_kinds == ("ring",)
    refused = runner.check(case, replace(layout, context_kind="ulysses"))
    assert refused and "context" in str(refused[0])

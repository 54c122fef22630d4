"""Attention kernels and torch.compile in a framework's files: written, read back, and refused where there is no key for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.draws import draws

from meshwright.domain.kernels import own_unsaid
from meshwright.estimate import estimate
from meshwright.frameworks import framework, frameworks
from meshwright.testing import legal_plans
from meshwright.testing.plans import is_legal
from meshwright.testing.promises import read_back

SPOKEN = sorted(
    name for each in frameworks() for name in (each, *(["mindformers@1.3.2"] if each == "mindformers" else []))
    if framework(name.partition("@")[0]).features.attentions or framework(name.partition("@")[0]).features.compiles
)
DRAWN = draws(12)


def plain_plans(name, count=DRAWN):
    """Plans that the framework runs, without context parallelism: a score matrix does not go with it."""
    runner = framework(name)
    for case, layout in legal_plans(name, count, seed=5):
        own = replace(layout, overlap=runner.overlap(case, layout))
        if own.context_parallel == 1 and is_legal(runner, case, own):
            yield runner, case, own


@pytest.mark.parametrize("name", SPOKEN)
def test_what_is_written_is_read_back(name):
    seen = 0
    for runner, case, layout in plain_plans(name):
        features = runner.features
        for kernel in (None, *features.attentions):
            for on in (None, True, False) if features.compiles else (None,):
                compiled, attention = own_unsaid(
                    case, features.attentions, compiled=on, attention=kernel, by_default=features.own_attention
                )
                named = replace(layout, attention=attention, compiled=compiled)
                if not is_legal(runner, case, named):
                    continue
                read = read_back(runner, case, runner.write(case, named)).layout
                assert read is not None
                assert (read.attention, read.compiled) == (attention, compiled), (kernel, on)
                assert estimate(case, read).label == estimate(case, runner.normal(case, named)).label
                seen += 1
    assert seen


@pytest.mark.parametrize("name", frameworks())
def test_a_kernel_without_a_key_is_refused_in_words(name):
    runner = framework(name)
    case, layout = next(iter(legal_plans(name, 1, seed=5)))
    layout = replace(layout, context_parallel=1)
    for word, named, able in (
        ("attention=math", replace(layout, attention="math"), "math" in runner.features.attentions),
        ("compile=off", replace(layout, compiled=False), runner.features.compiles),
    ):
        said = [str(each) for each in runner.check(case, named) if word in str(each)]
        also = "accelerate or llama-factory-hf or torchtitan"
        others = also if word.startswith("compile") else "bridge or llama-factory-hf or megatron or megatron-deepspeed"
        words = f"layout: {runner.title} has no key for {word}; {others}"
        assert [each[: len(words)] for each in said] == ([] if able else [words])


def test_blocks_of_a_ring_need_a_fused_kernel():
    runner = framework("megatron")
    case, layout = next(each for each in legal_plans("megatron", 40, seed=5) if each[1].context_parallel > 1)
    (said,) = runner.check(case, replace(layout, attention="math"))
    assert "needs cp1" in str(said)

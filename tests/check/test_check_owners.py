"""Whose file it is, by the keys that it holds."""

import pytest

from meshwright.frameworks import framework, frameworks, keys_of_ours, keys_of_plugins, plugins
from meshwright.frameworks.owners import owner_of

DEEPSPEED = ("zero_optimization.stage", "train_micro_batch_size_per_gpu", "gradient_clipping")


@pytest.mark.parametrize(("strange", "owner"), [(0, "deepspeed"), (1, "deepspeed"), (2, "deepspeed"), (3, None), (9, None)])
def test_a_framework_must_know_three_of_five_keys(strange, owner):
    found = owner_of((*DEEPSPEED, *(f"nobody.has.this{number}" for number in range(strange))), without="megatron")
    assert (found.name if found is not None else None) == owner


def test_tables_of_keys_read_alone_are_those_of_the_adapters():
    known = {name: sorted(keys) for name, keys in (*keys_of_ours(), *keys_of_plugins())}
    assert set(known) == {name for name in frameworks() if framework(name).surface is not None}
    assert known == {name: sorted(framework(name).surface().keys) for name in known}
    assert not plugins()

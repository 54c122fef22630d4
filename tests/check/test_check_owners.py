"""Whose file it is, by the keys that it holds."""

import pytest

from meshwright.frameworks.owners import owner_of

DEEPSPEED = ("zero_optimization.stage", "train_micro_batch_size_per_gpu", "gradient_clipping")


@pytest.mark.parametrize(("strange", "owner"), [(0, "deepspeed"), (1, "deepspeed"), (2, "deepspeed"), (3, None), (9, None)])
def test_a_framework_must_know_three_of_five_keys(strange, owner):
    found = owner_of((*DEEPSPEED, *(f"nobody.has.this{number}" for number in range(strange))), without="megatron")
    assert (found.name if found is not None else None) == owner

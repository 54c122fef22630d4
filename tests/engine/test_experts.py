"""A mixture of experts by hand: what its shared experts add."""

from __future__ import annotations

import pytest
import torch

from meshwright.domain.model import MixtureOfExperts
from meshwright.engine.experts import Experts


@pytest.mark.parametrize("gated", [False, True])
def test_shared_experts_add_to_the_routed_ones_as_much_as_their_gate_lets_through(gated):
    torch.manual_seed(3)
    layer = Experts(8, MixtureOfExperts(num_experts=4, experts_per_token=2, expert_width=16, shared_width=12, shared_gate=gated))
    for each in layer.parameters():
        torch.nn.init.normal_(each, std=0.3)
    x = torch.randn(1, 5, 8)
    whole, extra = layer(x), layer.shared(x)
    share = torch.sigmoid(layer.shared_gate(x)) if gated else torch.ones(1, 5, 1)
    layer.shared = None
    assert torch.allclose(whole, layer(x) + share * extra, atol=1e-6)

"""Whose elements of a parameter are whose, and what everybody has after they are gathered; ranks take turns in one process."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from meshwright.engine import optimizer  # noqa: E402
from meshwright.engine.optimizer import BETAS, LEARNING_RATE, WEIGHT_DECAY, OwnedAdamW  # noqa: E402


class Group:
    """So many ranks, of which one is here."""

    def __init__(self, size: int) -> None:
        self.ranks = size

    def size(self) -> int:
        return self.ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("shapes", [((4, 3),), ((5,), (2, 2), (1,)), ((7,), (3,))])
def test_a_step_of_every_rank_is_the_step_of_one(monkeypatch, ranks, shapes):
    """Each rank steps on its own slices; the exchange puts all of them together."""
    torch.manual_seed(1)
    values, gradients = ([torch.randn(shape) for shape in shapes] for _ in range(2))

    def parameters():
        made = [(f"p{place}", nn.Parameter(value.clone())) for place, value in enumerate(values)]
        for (_, each), gradient in zip(made, gradients, strict=True):
            each.grad = gradient.clone()
        return made

    alone = parameters()
    torch.optim.AdamW([each for _, each in alone], lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY).step()
    sent, group = {}, Group(ranks)

    def stepped(rank, everybody=None):
        def gather(out, mine, group):
            sent[rank] = mine.clone()
            out.copy_(torch.cat([sent[other] for other in range(ranks)]) if everybody else mine.repeat(ranks))

        monkeypatch.setattr(optimizer.dist, "get_rank", lambda _: rank)
        monkeypatch.setattr(optimizer.dist, "all_gather_into_tensor", gather)
        made = parameters()
        owned = OwnedAdamW([made], lambda _: group)
        owned.step()
        return made, owned

    bytes_of_states = [stepped(rank)[1].states_bytes() for rank in range(ranks)]
    assert sum(bytes_of_states) == 2 * 4 * sum(value.numel() for value in values)
    for rank in range(ranks):
        for (_, own), (_, whole) in zip(stepped(rank, everybody=True)[0], alone, strict=True):
            assert torch.allclose(own, whole, atol=1e-7)


def test_without_a_group_a_rank_has_all_of_it():
    parameter = nn.Parameter(torch.ones(5))
    parameter.grad = torch.ones(5)
    owned = OwnedAdamW([[("p", parameter)]], lambda _: None)
    owned.step()
    assert torch.allclose(parameter, torch.full((5,), 1.0 - LEARNING_RATE * (1.0 + WEIGHT_DECAY)), atol=1e-6)
    assert owned.states_bytes() == 2 * 4 * 5

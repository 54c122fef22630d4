"""Which parts of a decoder are sharded: none where nothing is shared and nothing is cast."""

from __future__ import annotations

from types import SimpleNamespace as Some

import pytest

torch = pytest.importorskip("torch")

from meshwright.domain.attention import Attention  # noqa: E402
from meshwright.domain.layout import Layout  # noqa: E402
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model  # noqa: E402
from meshwright.engine import parallel  # noqa: E402
from meshwright.engine.decoder import Decoder  # noqa: E402


def model(mixture: bool) -> Model:
    block = MixtureOfExperts(num_experts=2, experts_per_token=1, expert_width=8) if mixture else Mlp(width=8)
    kind = LayerKind(attention=Attention(num_heads=2, num_key_value_heads=2, head_dim=4), feed_forward=block)
    return Model(name="tiny", hidden=8, vocabulary=16, kinds=(kind,), pattern=(0, 0))


@pytest.mark.parametrize(
    ("cast", "replicas", "mixture", "sharers", "sharded"),
    [
        (False, 1, False, 1, 0), (True, 1, False, 1, 3), (False, 2, False, 1, 3), (False, 1, True, 1, 0), (False, 1, True, 2, 3),
        (False, 1, False, 2, 0), (True, 1, True, 1, 3),
    ],
)
def test_layers_are_sharded_where_ranks_share_them_or_products_are_cast(monkeypatch, cast, replicas, mixture, sharers, sharded):
    seen = []
    monkeypatch.setattr(parallel, "_shard", lambda module, ranks, **how: seen.append((module, how["mixed_precision"])))
    monkeypatch.setattr(parallel, "_shard_layer", lambda module, ranks, shard: shard(module, ranks.sharers))
    sizes = {"replicas": Some(size=lambda: replicas), "expert_sharers": Some(size=lambda: sharers)}
    ranks = Some(**sizes, sharers="sharers", place=lambda name: 0)
    part = Decoder(model(mixture))
    parallel.parallelize(part, Layout(num_microbatches=1), ranks, sequence_tokens=4, mixed_precision=cast)
    assert len(seen) == sharded
    assert {each[1] for each in seen} <= {cast}

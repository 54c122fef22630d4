"""A decoder small enough that a step of it takes about as long as asked for, by the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.layout import Layout
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.estimate.evaluate import evaluate
from meshwright.measure.reference import case_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster

HEADS, KEY_HEADS = 8, 4
"""So that two and four ranks divide them."""
VOCABULARY = 4096
SIZES: tuple[tuple[int, int, int], ...] = (
    (64, 8, 64), (64, 8, 128), (96, 8, 128), (128, 8, 128), (192, 8, 128), (256, 8, 128), (256, 8, 256), (384, 8, 256),
    (512, 8, 256), (512, 16, 256), (768, 16, 256), (1024, 16, 256), (1024, 16, 512), (2048, 16, 512), (2048, 16, 1024),
    (4096, 16, 1024), (4096, 16, 2048),
)
"""Hidden width, sequences and tokens of each, smallest step first."""


def decoder(hidden: int, layers: int, *, vocabulary: int = VOCABULARY) -> Model:
    """A dense decoder in the proportions of Llama 3: grouped keys, gated feed-forward of three times the width."""
    attention = Attention(num_heads=HEADS, num_key_value_heads=KEY_HEADS, head_dim=hidden // HEADS)
    kind = LayerKind(attention=attention, feed_forward=Mlp(width=3 * hidden))
    return Model(
        name=f"decoder-{hidden}x{layers}", hidden=hidden, vocabulary=vocabulary, kinds=(kind,), pattern=(0,) * layers,
        rotary_base=500000.0,
    )


def layers_for(ranks: int) -> int:
    """Layers that two chunks on every rank divide."""
    return max(4, 2 * ranks)


def small_case(cluster: Cluster, *, target_s: float, precision: str = "bf16") -> Case:
    """The largest case whose step is predicted within ``target_s`` on all devices of a cluster, the smallest where none is.

    Units:   ``target_s`` seconds of a data-parallel step.
    """
    ranks = cluster.num_devices
    cases = []
    for hidden, sequences, tokens in SIZES:
        model, batch = decoder(hidden, layers_for(ranks)), sequences * max(1, ranks // 4)
        cases.append(case_of(model, cluster, global_batch=batch, sequence_tokens=tokens, precision=precision))
        if predicted_s(cases[-1]) > target_s:
            break
    return cases[0] if len(cases) == 1 else cases[-2] if predicted_s(cases[-1]) > target_s else cases[-1]


def cases(cluster: Cluster, *, target_s: float, precision: str = "bf16") -> list[Case]:
    """The cases that are rehearsed: one, and on one device, whose layouts differ in little, also a narrower and a longer one."""
    first = small_case(cluster, target_s=target_s, precision=precision)
    if cluster.num_devices > 1:
        return [first]
    hidden, layers, batch = first.model.hidden, first.model.num_layers, first.batch
    shapes = [
        (max(SIZES[0][0], hidden // 2), 2 * layers, batch.global_batch_sequences, batch.sequence_tokens),
        (hidden, layers, batch.global_batch_sequences // 2, 2 * batch.sequence_tokens),
    ]
    return [first, *(
        case_of(decoder(width, depth), cluster, global_batch=sequences, sequence_tokens=tokens, precision=precision)
        for width, depth, sequences, tokens in shapes
    )]


def predicted_s(case: Case) -> float:
    """The step of a case under plain data parallelism."""
    devices = case.cluster.num_devices
    layout = Layout(data_parallel=devices, num_microbatches=max(1, case.batch.global_batch_sequences // devices))
    return float(evaluate(case, layout).time.step_s)

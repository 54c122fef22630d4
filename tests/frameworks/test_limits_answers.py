"""Which layouts each framework refuses, and by which of its limits: pure logic over a drawn sample of all knobs.

The golden file has a row for each framework and limit: how many of the layouts it refuses, and a digest of which. After a wanted
change: ``PYTHONPATH=src:tests python tests/frameworks/test_limits_answers.py --update-golden``, and read which rows are others.
"""

from __future__ import annotations

import random
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective
from meshwright.frameworks import framework, frameworks

GOLDEN = Path(__file__).parent / "golden" / "limits.txt"
NUMBER = 300
MODELS = {"dense": ("llama3-8b", "h100-sxm"), "mixture": ("qwen3-30b-a3b", "h100-sxm"), "latent": ("deepseek-v3", "b200")}


@cache
def layouts() -> tuple[Layout, ...]:
    """Knobs drawn apart from each other, most of them at their neutral value."""
    rng, found = random.Random(5), []

    def some(*others: Any) -> Any:
        return rng.choice(others) if rng.random() < 0.4 else None

    while len(found) < NUMBER:
        tp, pp, cp, ep, etp = (some(*each) or 1 for each in ((2, 4, 8, 16), (2, 3, 4, 8), (2, 4, 8), (2, 8, 64), (2, 4)))
        dp, vp, mb = rng.choice((1, 2, 8, 16)), (some(2, 4) or 1) if pp > 1 else 1, some(2, 4, 16) or 1
        stage = rng.randrange(4) if dp * cp > 1 else 0
        partial = 2 if dp > 2 and rng.random() < 0.2 else 1
        shards = [dp * cp // partial if stage >= each else 1 for each in (1, 2, 3)]
        schedules = (("interleaved", "zbv", "dualpipev") if vp == 2 else ("interleaved",)) if vp > 1 else ("1f1b", "gpipe", "zb1p")
        uneven = tuple(tuple(2 + (stage == chunk) for stage in range(pp)) for chunk in range(vp))
        modules = (("core_attn",), ("layernorm",), ("mlp",), ("moe_act", "layernorm"), ("mla_up_proj",))
        found.append(
            Layout(
                tensor_parallel=tp,
                sequence_parallel=tp > 1 and rng.random() < 0.7,
                pipeline_parallel=pp,
                context_parallel=cp,
                context_kind=rng.choice(("ring", "ulysses", "all-gather", "hybrid")) if cp > 1 else "ring",
                expert_parallel=ep,
                expert_tensor_parallel=etp,
                data_parallel=dp,
                virtual_stages=vp,
                schedule=rng.choice(schedules),
                microbatch_sequences=mb,
                num_microbatches=rng.choice((1, 2, 4, 16)),
                optimizer_shards=shards[0],
                gradient_shards=shards[1],
                parameter_shards=shards[2],
                stage_layers=uneven if pp > 1 and rng.random() < 0.2 else None,
                offload=some(("optimizer",)) or (),
                recompute=some(Full(), Full(layers=1), *(Selective(modules=each) for each in modules)) or NoRecompute(),
                overlap=Overlap(gradient_reduce=rng.random() < 0.5, parameter_gather=rng.random() < 0.3, tensor=rng.random() < 0.2),
            )
        )
    return tuple(found)


@cache
def refused(name: str) -> dict[str, str]:
    """Limit of a framework -> how many layouts it refuses, and a digest of which."""
    one, found = framework(name), {}
    for kind, (model, device) in MODELS.items():
        case = make_case(
            model, cluster_for(device, num_devices=64), global_batch_sequences=64, sequence_tokens=4096, framework=name
        )
        for place, layout in enumerate(layouts()):
            for message in one.check(case, layout):
                found.setdefault(message.id, []).append(f"{kind} {place} {message.path}")
    return {id: f"{len(places)} {sha256(' '.join(places).encode()).hexdigest()[:10]}" for id, places in sorted(found.items())}


def rows(name: str) -> list[str]:
    return [f"{name}: {id}: {said}" for id, said in refused(name).items()]


@pytest.mark.parametrize("name", frameworks())
def test_every_limit_refuses_the_layouts_that_it_refused(name: str) -> None:
    wanted = [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if line.startswith(f"{name}: ")]
    assert rows(name) == wanted


if __name__ == "__main__" and "--update-golden" in sys.argv:
    GOLDEN.write_text("".join(f"{row}\n" for name in frameworks() for row in rows(name)), encoding="utf-8")

"""The padded and the packed step of real PyTorch on this machine, beside the ratio and the interval that ``pack`` predicts.

Both are the reference step: as many sequences as samples, each padded to the longest, or the packs. Attention of a pack runs
sample by sample, as kernels of variable length do; everything else runs over the whole pack with its padding. Pairs are taken in
turn, in seconds of the rank's own thread on its core.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

import meshwright as mw
from benchmarks.reference_time import decoder
from meshwright.domain.layout import Layout
from meshwright.engine.launch import Task, launch
from meshwright.engine.request import Options, Request
from meshwright.measure.here import on_one_host
from meshwright.measure.reference import NOTHING
from meshwright.packing.drawn import distribution

PAIRS = 9
SAMPLES, LONGEST = 16, 512
SHAPES = {
    "log-normal, median 100": "lognormal:median=100,sigma=0.8", "log-normal, median 200": "lognormal:median=200,sigma=0.5",
    "bimodal 60 and 450": "bimodal:low=60,high=450,share=0.7", "uniform": "uniform:min=16",
}
MODEL = decoder(128, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both ways of one list of lengths."""

    lengths: tuple[int, ...]
    packs: tuple[tuple[int, ...], ...]


def lines(cluster: Path) -> list[str]:
    """A section of the page."""
    machine = on_one_host(mw.load_cluster(str(cluster)), 1)
    found = [
        "## Packed and padded steps of PyTorch", "",
        f"A decoder of {MODEL.hidden} x {MODEL.num_layers}, {SAMPLES} samples of at most {LONGEST} tokens, packs of {LONGEST};",
        f"one thread of a processor, its own seconds, median of {PAIRS} interleaved pairs. Predicted by `pack --cluster` and a",
        "quick `meshwright profile` of that machine.", "",
        "| lengths | packs | padded over packed, predicted | interval | measured | inside |", "|:--|--:|--:|--:|--:|:--|",
    ]
    for name, text in SHAPES.items():
        lengths = distribution(f"{text},max={LONGEST},n={SAMPLES}").draw(3)
        lengths[0] = LONGEST
        answer = mw.pack(mw.PackRequest(
            lengths=lengths, max_tokens=LONGEST, model=MODEL, cluster=machine, implementation="reference",
            layout="tp1 mb1 zero0 overlap=none",
        ))
        packs = answer.packed.rules.ranks(lengths)[0]
        pair = Pair(lengths=tuple(lengths.tolist()), packs=tuple(map(tuple, packs)))
        ratios = launch(Task(target="benchmarks.packing_step:measured", payload=pair), 1)[0]
        ratio, (low, high) = answer.packed.speedup.ratio, answer.packed.speedup.interval
        middle = median(ratios)
        found.append(
            f"| {name} | {len(packs)} | {ratio:.2f} | {low:.2f}-{high:.2f} | {middle:.2f} "
            f"| {'yes' if low <= middle <= high else 'no'} |"
        )
        print(found[-1], [round(each, 2) for each in ratios], flush=True)
    return found


def measured(pair: Pair) -> list[float]:
    """On a rank: padded over packed seconds of each pair."""
    import torch

    from meshwright.engine.data import Sample, collate_packed

    rng = np.random.default_rng(0)
    tokens = [torch.tensor(rng.integers(0, MODEL.vocabulary, length + 1)) for length in pair.lengths]
    padded = _trainer(len(pair.lengths))
    packed = _trainer(len(pair.packs))
    batches = [collate_packed([tokens[item][:-1] for item in each], pad_to=LONGEST) for each in pair.packs]
    fill = torch.zeros(len(tokens), LONGEST, dtype=torch.long)
    for row, each in zip(fill, tokens, strict=True):
        row[: len(each) - 1] = each[:-1]
    plain = Sample(tokens=fill, targets=fill.clone(), documents=None)
    together = Sample(
        tokens=torch.cat([each["tokens"] for each in batches]), targets=torch.cat([each["tokens"] for each in batches]),
        documents=torch.cat([each["documents"] for each in batches]),
    )
    for block in packed.parts[0].blocks.values():
        core = block.attention.core
        core.forward = types.MethodType(_sample_by_sample, core)
    ratios = []
    for number in range(1 + PAIRS):
        before, after = _seconds(padded, plain), _seconds(packed, together)
        if number:
            ratios.append(before / after)
    return ratios


def _trainer(sequences: int) -> Any:
    import torch

    from meshwright.engine.step import build

    layout = Layout(num_microbatches=sequences, overlap=NOTHING)
    return build(Request(model=MODEL, layout=layout, sequence_tokens=LONGEST, bf16=True, options=Options()), torch.device("cpu"))


def _seconds(trainer: Any, sample: Any) -> float:
    from meshwright.engine.step import train_step

    begin = thread_time()
    train_step(trainer, sample)
    return thread_time() - begin


def _sample_by_sample(core: Any, query: Any, key: Any, value: Any, documents: Any, sinks: Any) -> Any:
    """Attention of every sample of a pack by itself."""
    import torch

    counts = torch.unique_consecutive(documents[0], return_counts=True)[1].tolist()
    parts = zip(*(each.split(counts, dim=2) for each in (query, key, value)), strict=True)
    return torch.cat([type(core).forward(core, *part, None, sinks) for part in parts], dim=2)

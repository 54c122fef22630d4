"""The reference step's time, predicted from what a profile measured, beside its real one.

``python -m benchmarks.reference_time FILE``: a cluster file of ``meshwright profile``. One process first, whose error is the floor
of all others; then two.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from meshwright.catalog import load_cluster
from meshwright.domain.attention import Attention
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout, Selective
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.engine.launch import Task, launch
from meshwright.engine.request import Options
from meshwright.engine.run import request_of
from meshwright.estimate.single import estimate
from meshwright.measure.here import on_one_host
from meshwright.measure.reference import NOTHING, case_of
from meshwright.words import percent, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.engine.request import Request

STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Medians over steps of this rank's seconds."""

    step_s: float
    busy_s: float
    """The processor's time of the rank's own thread: without waiting, and without what other programs take."""
    optimizer_s: float
    communication_s: float
    """Of one profiled step, with nothing else under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One layout of one model."""

    model: Model
    sequence_tokens: int
    layout: Layout


def decoder(hidden: int, layers: int, *, vocabulary: int = 2048) -> Model:
    """A small decoder with heads of 32 and half as many keys as queries."""
    attention = Attention(num_heads=hidden // 32, num_key_value_heads=hidden // 64, head_dim=32)
    kind = LayerKind(attention=attention, feed_forward=Mlp(width=11 * hidden // 4 // 32 * 32))
    return Model(
        name=f"h{hidden}-l{layers}", hidden=hidden, vocabulary=vocabulary, pattern=(0,) * layers, kinds=(kind,), rotary_base=10000.0
    )


def single() -> Iterator[Trial]:
    """One process: what the operators of a layer, the ends and the optimizer take."""
    for hidden, layers, tokens, sequences, micro in (
        (128, 4, 256, 4, 1), (256, 4, 256, 1, 2), (256, 4, 256, 2, 1), (256, 2, 1024, 1, 1), (512, 2, 128, 4, 1),
        (512, 2, 512, 1, 1),
    ):
        layout = Layout(microbatch_sequences=sequences, num_microbatches=micro, overlap=NOTHING)
        yield Trial(model=decoder(hidden, layers), sequence_tokens=tokens, layout=layout)
    again = Layout(microbatch_sequences=2, recompute=Full(), overlap=NOTHING)
    yield Trial(model=decoder(256, 4), sequence_tokens=256, layout=again)


def pairs() -> Iterator[Trial]:
    """Two processes, eight sequences of 128 tokens."""
    model = decoder(256, 4)
    for knobs in (
        {"data_parallel": 2}, {"data_parallel": 2, "optimizer_shards": 2},
        {"data_parallel": 2, "optimizer_shards": 2, "gradient_shards": 2},
        {"data_parallel": 2, "optimizer_shards": 2, "gradient_shards": 2, "parameter_shards": 2},
        {"data_parallel": 2, "microbatch_sequences": 4}, {"data_parallel": 2, "recompute": Full()},
        {"data_parallel": 2, "recompute": Selective(modules=("core_attn",))},
        {"tensor_parallel": 2}, {"tensor_parallel": 2, "sequence_parallel": True},
        {"tensor_parallel": 2, "microbatch_sequences": 4},
        {"tensor_parallel": 2, "recompute": Full()},
        {"pipeline_parallel": 2}, {"pipeline_parallel": 2, "microbatch_sequences": 1},
        {"pipeline_parallel": 2, "schedule": "gpipe"},
        {"pipeline_parallel": 2, "virtual_stages": 2}, {"pipeline_parallel": 2, "schedule": "zb1p"},
        {"context_parallel": 2, "context_kind": "ulysses"},
        {"context_parallel": 2, "context_kind": "ulysses", "microbatch_sequences": 4},
    ):
        layout = Layout(**({"microbatch_sequences": 2, "overlap": NOTHING} | knobs))  # type: ignore[arg-type]
        each = layout.data_parallel * layout.microbatch_sequences
        yield Trial(model=model, sequence_tokens=128, layout=replace(layout, num_microbatches=8 // each))


def parts(request: Request) -> Parts:
    """On a rank: the step, and in it the optimizer; then one step under the profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from meshwright.engine.exposed import exposed_s
    from meshwright.engine.step import build, clear_gradients, gradients_of, mean_over_ranks, sample_of, train_step

    trainer = build(request, torch.device("cpu"))
    steps, busy, updates = [], [], []
    for number in range(2 + STEPS):
        sample = sample_of(trainer, number)
        torch.distributed.barrier()
        begin, own = perf_counter(), thread_time()
        loss = gradients_of(trainer, sample)
        middle = perf_counter()
        trainer.optimizer.step()
        updates.append(perf_counter() - middle)
        clear_gradients(trainer)
        mean_over_ranks(trainer, loss)
        steps.append(perf_counter() - begin)
        busy.append(thread_time() - own)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        train_step(trainer, sample_of(trainer, 0))
    _, exposed = exposed_s(recorded.events() or [])
    return Parts(step_s=median(steps[2:]), busy_s=median(busy[2:]), optimizer_s=median(updates[2:]), communication_s=exposed)


def main() -> None:
    """Run the trials and print them, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cluster", type=Path)
    parser.add_argument("--ranks", type=int, choices=(1, 2))
    parser.add_argument("--only", default="", help="words that the layout's label must contain")
    asked = parser.parse_args()
    cluster = load_cluster(str(asked.cluster))
    trials = [*(single() if asked.ranks != 2 else ()), *(pairs() if asked.ranks != 1 else ())]
    errors = []
    print(
        f"{'model':9} {'layout':46} {'step, s':>15} {'error':>7}   {'busy, s':>15}   {'optimizer, ms':>13}"
        f"   {'communication, ms':>17}"
    )
    for trial in trials:
        if asked.only not in label(trial.layout):
            continue
        layout, tokens = trial.layout, trial.sequence_tokens
        sequences = layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches
        case = case_of(trial.model, on_one_host(cluster, layout.world), global_batch=sequences, sequence_tokens=tokens)
        said = estimate(case, trial.layout)
        request = request_of(case, trial.layout, Options())
        found = launch(Task(target="benchmarks.reference_time:parts", payload=request), trial.layout.world)
        step_s, split = max(each.step_s for each in found), said.time
        sent = split.tensor_parallel_s + split.context_parallel_s + split.pipeline_exposed_s + split.data_parallel_exposed_s
        errors.append(said.step_s / step_s - 1.0)
        print(
            f"{trial.model.name:9} {label(trial.layout)[:46]:46} {said.step_s:7.3f}/{step_s:7.3f} {signed(errors[-1]):>8}"
            f"   {split.compute_s + split.host_s + split.optimizer_s:7.3f}/{max(each.busy_s for each in found):7.3f}"
            f"   {1e3 * split.optimizer_s:6.1f}/{1e3 * max(each.optimizer_s for each in found):6.1f}"
            f"   {1e3 * (sent + split.bubble_s):8.1f}/{1e3 * max(each.communication_s for each in found):8.1f}",
            flush=True,
        )
    print(f"{len(errors)} layouts, median error {percent(median(map(abs, errors)))}")


if __name__ == "__main__":
    main()

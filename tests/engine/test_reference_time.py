"""What the time model says that the reference step runs and sends, against counts of its operators: nothing is timed.

A device of one byte a second turns seconds into bytes, so that the model's own sums are held to the counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.engine.dry_run_layouts import CP, DENSE, MOE, NO_SHARED, SP, Trial, case_of, zero
from tests.engine.reference_operators import counts_of
from tests.shared import once

from meshwright.catalog.implementations import implementation
from meshwright.domain.case import Case
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout, Overlap, Selective
from meshwright.domain.model import Model
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.many import evaluate_many
from meshwright.estimate.rank import rank_figures
from meshwright.estimate.single import estimate
from meshwright.perf.collectives import OfTensor
from meshwright.perf.messages import replicated_gradients
from meshwright.perf.pieces import layer_pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.mesh import Group
    from meshwright.perf.arrays import Array, Number

pytest.importorskip("torch")

REFERENCE = implementation("reference")
OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
NOTHING = Overlap(gradient_reduce=False, parameter_gather=False, point_to_point=False)
WIDE = replace(DENSE, name="wide", kinds=(replace(DENSE.kinds[0], attention=replace(DENSE.attention, num_heads=16)),))
FOUR = replace(NO_SHARED.kinds[0], feed_forward=replace(NO_SHARED.feed_forward, num_experts=4))
FEW_EXPERTS = replace(NO_SHARED, name="few-experts", kinds=(FOUR,))
LAYERS = (1, 2)
NO_TIME = ("kernel_gap_s", "launch_s", "collective_host_s", "collective_skew_s", "shard_host_s", "step_host_s", "microbatch_host_s",
           "collective_fixed_s", "peer_s", "straggler_slope", "expert_sync_s")
"""Constants that are no bytes."""
LAYOUTS = {
    "one": Layout(microbatch_sequences=4), "tensor": Layout(microbatch_sequences=4, tensor_parallel=2),
    "sequence": Layout(microbatch_sequences=4, **SP), "context": Layout(microbatch_sequences=4, **CP),
}
SHARDED = {
    name: Layout(data_parallel=2, num_microbatches=m, overlap=NOTHING, **zero(stage, 2))
    for stage, m in ((0, 1), (1, 3), (2, 3), (3, 2)) for name in (f"zero{stage} m{m}",)
}
MIXED = {"moe": (MOE, Layout(microbatch_sequences=4)), "few": (FEW_EXPERTS, Layout()), "many": (NO_SHARED, Layout())}


@cache
def found() -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Name -> counts of a layer, and of what is no layer; of sharded layouts everything stands there."""
    named = {**{name: (WIDE, layout) for name, layout in LAYOUTS.items()}, **MIXED}
    jobs = [Trial(model=replace(model, pattern=(0,) * n), layout=layout).job for model, layout in named.values() for n in LAYERS]
    jobs += [Trial(model=DENSE, layout=layout).job for layout in SHARDED.values()]
    counted = iter(once("reference-counts", lambda: counts_of(jobs)))
    result: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for name in named:
        few, many = (Counter(next(counted)) for _ in LAYERS)
        layer = {key: (many[key] - few[key]) / (LAYERS[1] - LAYERS[0]) for key in many}
        result[name] = (layer, {key: few[key] - LAYERS[0] * each for key, each in layer.items()})
    return result | {name: ({}, next(counted)) for name in SHARDED}


def in_bytes(model: Model, layout: Layout) -> Case:
    """A case whose seconds are bytes of memory traffic: products, messages and hosts take no time."""
    case = case_of(model, layout)
    device = replace(case.cluster.device, memory_bytes_per_s=1.0, peak_flops_per_s={"bf16": 1e40}, synchronous=True)
    link = replace(case.cluster.scale_up, bytes_per_s=1e40, latency_s=0.0)
    constants = replace(
        case.calibration.constants, memory_ratio=1.0, expert_memory_ratio=1.0, scale_up_ratio=1.0, expert_load_spread=0.0,
        **dict.fromkeys(NO_TIME, 0.0),
    )
    return replace(
        case, implementation=REFERENCE, cluster=replace(case.cluster, device=device, scale_up=link),
        calibration=replace(case.calibration, constants=constants),
    )


def without_norms(case: Case) -> Case:
    """Norms are one kernel on an accelerator, of which a dry run shows nothing."""
    rows = tuple(row for row in case.implementation.passes if row.kind != "norm")
    return replace(case, implementation=replace(case.implementation, passes=rows))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layer_moves_as_many_bytes_as_its_rows_say(name: str) -> None:
    """What is left are the tables of rotary embedding, which do not grow with the sequences, and the norms' scales and sums."""
    layout = LAYOUTS[name]
    case = without_norms(in_bytes(WIDE, layout))
    costs = evaluate(case, layout).costs
    pieces = layer_pieces(WIDE.kinds[0], case, costs.shape)
    exchanged = float(costs.kinds[0].time.forward.context)
    layer = found()[name][0]
    assert layer["forward bytes"] == pytest.approx(float(pieces.elementwise_forward) + exchanged, rel=0.06)
    backward = layer["backward bytes"] - layer["backward bytes sum"]
    assert backward == pytest.approx(float(pieces.elementwise_backward) + exchanged, rel=0.06)


def test_a_mixture_moves_as_many_bytes_as_its_rows_say() -> None:
    """Gradients of experts' weights that are stacked count with the weights, not with the tokens."""
    layout = MIXED["moe"][1]
    case = without_norms(in_bytes(MOE, layout))
    pieces = layer_pieces(MOE.kinds[0], case, evaluate(case, layout).costs.shape)
    layer = found()["moe"][0]
    assert layer["forward bytes"] == pytest.approx(float(pieces.elementwise_forward), rel=0.06)
    backward = layer["backward bytes"] - layer["backward bytes stack"] - layer["backward bytes sum"]
    assert backward == pytest.approx(float(pieces.elementwise_backward), rel=0.06)


def test_a_layer_launches_as_many_kernels_as_the_implementation_says() -> None:
    for name in ("one", "tensor"):
        layer = found()[name][0]
        assert (layer["forward calls"], layer["backward calls"]) == (REFERENCE.kernels_forward, REFERENCE.kernels_backward)
    few, more, mixed = (found()[name][0] for name in ("few", "many", "moe"))
    for direction, each, others in (
        ("forward", REFERENCE.kernels_expert_forward, REFERENCE.kernels_forward + REFERENCE.kernels_moe_forward),
        ("backward", REFERENCE.kernels_expert_backward, REFERENCE.kernels_backward + REFERENCE.kernels_moe_backward),
    ):
        calls = f"{direction} calls"
        assert (more[calls] - few[calls]) / 4 == each
        assert mixed[calls] == others + 8 * each


def test_the_loss_moves_as_many_bytes_as_the_implementation_says() -> None:
    for name, each in (("one", REFERENCE.loss_passes), ("tensor", REFERENCE.split_loss_passes)):
        layout, ends = LAYOUTS[name], found()[name][1]
        logits = layout.microbatch_sequences * 64 * WIDE.vocabulary / layout.tensor_parallel
        for direction, said in zip(("forward", "backward"), each, strict=True):
            # What a gradient of zeros is made like is counted and not moved; the embedding is none of the loss.
            others = ("zeros_like", "embedding", "embedding_dense_backward", "masked_fill", "masked_fill_")
            moved = ends[f"{direction} bytes"] - sum(ends.get(f"{direction} bytes {each}", 0.0) for each in others)
            assert moved / logits == pytest.approx(said, rel=0.15), (name, direction)


@pytest.mark.parametrize("name", SHARDED)
def test_units_copy_as_many_bytes_as_the_implementation_says(name: str) -> None:
    """Casts, copies around messages, sums of gradients; the fused update reads four numbers a parameter and writes three."""
    layout = SHARDED[name]
    every = found()[name][1]
    moved = sum(every[key] for key in ("forward unit bytes", "backward unit bytes", "update unit bytes"))
    update = every["update unit bytes _fused_adamw_"]
    split = estimate(in_bytes(DENSE, layout), layout).time
    assert split.data_parallel_exposed_s == pytest.approx(moved - update, rel=0.03)  # owners hold whole rows of a tied table
    assert split.optimizer_s == pytest.approx(update / 16.0 * (16.0 + 12.0), rel=1e-3)


MESSAGES = (
    Layout(data_parallel=2), Layout(data_parallel=2, num_microbatches=2), Layout(data_parallel=4, num_microbatches=2, **zero(1, 4)),
    Layout(data_parallel=4, num_microbatches=2, **zero(2, 2)), Layout(data_parallel=2, num_microbatches=3, **zero(2, 2)),
    Layout(data_parallel=2, num_microbatches=3, **zero(3, 2)), Layout(data_parallel=4, **zero(3, 2)),
    Layout(tensor_parallel=2), Layout(tensor_parallel=2, recompute=Full(), num_microbatches=2), Layout(**SP, num_microbatches=2),
    Layout(**SP, recompute=Full()), Layout(**SP, data_parallel=2, **zero(3, 2)), Layout(**CP, num_microbatches=2),
    Layout(**CP, recompute=Full()), Layout(**CP, recompute=Selective(modules=("core_attn",))),
    Layout(**CP, **SP, data_parallel=2, num_microbatches=2, **zero(2, 4)),
)


@pytest.mark.parametrize("layout", MESSAGES, ids=label)
def test_the_time_model_counts_the_bytes_that_a_rank_sends(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """One operation at a time takes a second a byte, all else nothing. Dry runs hold ``rank_figures`` to what PyTorch sends.

    Sums of norms' gradients over tensor ranks, some kilobytes a layer, are the only messages that the time leaves out.
    """
    layout = replace(layout, overlap=NOTHING)
    case = in_bytes(DENSE, layout)
    case = replace(case, cluster=replace(case.cluster, device=replace(case.cluster.device, memory_bytes_per_s=1e40)))
    shape = evaluate(case, layout).costs.shape
    norms = (DENSE.kinds[0], DENSE.kinds[0], None)
    partial = (each for kind in norms for each in replicated_gradients(DENSE, kind, shape, element_bytes=4))
    left_out = layout.num_microbatches * sum(each.payload_bytes for each in partial)
    for operation in OPERATIONS:
        _price(monkeypatch, operation)
        said = float(evaluate(case, layout).time.step_s)
        sent = rank_figures(replace(case, implementation=implementation("torch-eager")), layout, 0).messages
        wanted = float(sum(each.payload_bytes for each in sent if each.operation.replace("-", "_") == operation))
        small = float(left_out) if operation == "all_reduce" else 0.0
        assert said == pytest.approx(wanted, rel=1e-12, abs=max(small, 1e-3)), operation


def test_columns_of_layouts_say_what_each_alone_says_to_the_last_bits() -> None:
    batch = [replace(layout, microbatch_sequences=1, num_microbatches=8 // layout.data_parallel) for layout in MESSAGES]
    piped = Layout(pipeline_parallel=2, num_microbatches=8)
    layouts = [*batch, piped, replace(piped, data_parallel=2, num_microbatches=4, **zero(2, 2)), replace(piped, schedule="gpipe")]
    case = replace(case_of(DENSE, layouts[0]), implementation=REFERENCE)
    times, reserved = evaluate_many(case, layouts)
    alone = [evaluate(case, layout) for layout in layouts]
    assert times.tolist() == [float(each.time.step_s) for each in alone]
    assert reserved.tolist() == pytest.approx([float(each.memory.reserved_bytes.max()) for each in alone], rel=1e-14)


def _price(monkeypatch: pytest.MonkeyPatch, priced: str) -> None:
    """One operation takes a second a byte, the others nothing."""

    def of(operation: str) -> Callable[..., Array]:
        def seconds(payload_bytes: Number, group: Group, *_: object, **__: object) -> Array:
            costs = (np.asarray(group.ranks) > 1.0) & (operation == priced)
            return np.where(costs, np.asarray(payload_bytes, dtype=np.float64), 0.0)

        return seconds

    def of_tensor_s(*sent: Any) -> OfTensor:
        return OfTensor(gather=of("all_gather")(*sent), scatter=of("reduce_scatter")(*sent), reduce=of("all_reduce")(*sent))

    for module in ("exchange", "ends", "sharded_units", "data_parallel"):
        for operation in OPERATIONS:
            monkeypatch.setattr(f"meshwright.perf.{module}.{operation}_s", of(operation), raising=False)
        monkeypatch.setattr(f"meshwright.perf.{module}.of_tensor_s", of_tensor_s, raising=False)

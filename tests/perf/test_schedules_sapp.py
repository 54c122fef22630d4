"""SAPP's own simulator as the oracle: mindspore-ai/toolkits, perftool/autoparallel/pipeline_balance/simulator (Apache-2.0).

`sapp_simulated.json` holds 60 random pipelines and what that simulator said of them when it was run beside this test was written:
the length without and with transfers (null: it found a deadlock, also in the less-memory order where stages do not divide
micro-batches, which ours runs) and the peaks. Its conventions: rows are chunks, the backward is
twice the forward plus what is recomputed, a transfer occupies sender and receiver. Nothing of its code is here.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from meshwright.perf.schedules import ORDERS, bubble_split, makespans, simulate

RUNS = json.loads((Path(__file__).parent / "sapp_simulated.json").read_text(encoding="utf-8"))


def name(run):
    """Of a run, for reports."""
    return f"{run['schedule']} P{len(run['forward'][0])} V{len(run['forward'])} m{run['microbatches']} {run['hop']:g}"


def pipeline(forward, recompute=0.0):
    """Times by stage and chunk, from rows of chunks."""
    forward = np.atleast_2d(np.array(forward, dtype=float)).T
    again = np.broadcast_to(np.atleast_2d(np.array(recompute, dtype=float)).T, forward.shape)
    return {"forward_s": forward, "backward_input_s": 2.0 * forward + again, "backward_weight_s": 0.0}, again


def order_of(run):
    return ORDERS[run["schedule"]](len(run["forward"][0]), run["microbatches"], num_chunks=len(run["forward"]))


@pytest.mark.parametrize("run", [run for run in RUNS if run["total"] is not None], ids=name)
def test_without_transfers_we_say_the_same(run):
    times, _ = pipeline(run["forward"], run["recompute"])
    timeline = simulate(order_of(run), **times, activation=np.array(run["activation"]).T)
    assert timeline.makespan_s == pytest.approx(run["total"], abs=1e-6)
    np.testing.assert_allclose(timeline.peak_held, run["peaks"], atol=1e-6)


def comparable(run):
    """Where SAPP's transfers can be run, and a stage's only steady forward sends as all others do.

    It delays the sends of the alternating part; whether one forward alone is one is told by its builder, not by the order.
    """
    stages, microbatches = len(run["forward"][0]), run["microbatches"]
    single = run["schedule"] != "1f1b" and microbatches == stages and stages % 2 == 1
    return run["total_with_hops"] is not None and not single and (run["schedule"] == "1f1b" or microbatches % stages == 0)


@pytest.mark.parametrize("run", [run for run in RUNS if comparable(run)], ids=name)
def test_with_transfers_that_occupy_both_ends_we_say_the_same(run):
    times, _ = pipeline(run["forward"], run["recompute"])
    assert makespans(order_of(run), **times, hop_s=run["hop"], rendezvous=True)[0] == pytest.approx(
        run["total_with_hops"], abs=1e-6
    )


def test_most_pipelines_are_comparable():
    assert sum(run["total"] is not None for run in RUNS) >= 50
    assert sum(comparable(run) for run in RUNS) >= 25


def test_its_less_memory_order_cannot_transfer_in_its_order_of_transfers():
    """That is why SAPP simulates answers without communication; here both, too, meet a deadlock."""
    runs = [run for run in RUNS if run["schedule"] == "interleaved-less-memory"]
    assert all(run["total_with_hops"] is None for run in runs)
    for run in runs[:5]:
        times, _ = pipeline(run["forward"], run["recompute"])
        with pytest.raises(AssertionError, match="deadlock"):
            simulate(order_of(run), **times, hop_s=run["hop"], rendezvous=True)


FOLDED = {"forward": [[2.0] * 8, [2.0] * 8, [2.0] * 7 + [2.6]], "recompute": [[0] * 8, [1] + [0] * 7, [2, 2, 1] + [0] * 5]}


@pytest.mark.parametrize(
    ("schedule", "microbatches", "forward", "recompute", "hop", "parts"),
    [
        ("1f1b", 16, [[8.0, 8.0, 8.0, 8.8]], 0.0, 0.1, (0.2658, 0.1875, 0.0615, 0.0168, 0.0)),
        ("interleaved", 8, [[2.0] * 4, [1.0, 2.0, 3.0, 3.2]], 0.0, 0.1, (0.4971, 0.1875, 0.2447, 0.0649, 0.0)),
        ("interleaved", 16, [[3.0] * 15, [3.0] * 8 + [4.0] * 6 + [4.2]], 0.0, 0.0, (0.5741, 0.4375, 0.1366, 0.0, 0.0)),
        ("interleaved", 16, FOLDED["forward"], FOLDED["recompute"], 0.1, (0.4444, 0.1458, 0.1851, 0.0724, 0.0412)),
    ],
)
def test_published_bubbles(schedule, microbatches, forward, recompute, hop, parts):
    """T8 of the reference: real = ideal + imbalance + communication + recompute, from the docstring of its pp_simulator.py."""
    times, again = pipeline(forward, recompute)
    order = ORDERS[schedule](len(forward[0]), microbatches, num_chunks=len(forward))
    split = bubble_split(order, **times, recompute_s=again, hop_s=hop, rendezvous=hop > 0.0)
    found = (split.total_ratio, split.ideal_ratio, split.imbalance_ratio, split.communication_ratio, split.recompute_ratio)
    assert found == pytest.approx(parts, abs=5.1e-5)


@pytest.mark.parametrize("stages", [2, 3, 4, 6, 7, 8])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_its_closed_forms_of_communication_are_the_simulation_of_alike_stages(stages, rounds):
    """Hops over all stages: 4 P m + 4 P^2 - 14 P (even P) or - 12 P (odd), 4 m for two stages (its _statistic_init)."""
    m = stages * rounds
    hops = 4 * m if stages == 2 else 4 * stages * m + 4 * stages**2 - (12 if stages % 2 else 14) * stages
    order = ORDERS["1f1b"](stages, m)
    split = bubble_split(order, forward_s=4.0, backward_input_s=8.0, backward_weight_s=0.0, hop_s=0.1, rendezvous=True)
    assert split.communication_ratio == pytest.approx(hops * 0.1 / (12.0 * stages * m))
    assert split.imbalance_ratio == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("interleaved", 3), ("zb1p", 1), ("dualpipev", 2), ("gpipe", 1)])
def test_parts_sum_to_the_simulated_bubble_whatever_the_transfers(schedule, chunks):
    rng = np.random.default_rng(3)
    forward, again = 1.0 + rng.random((4, chunks)), 0.3 * rng.random((4, chunks))
    times = {"forward_s": forward, "backward_input_s": forward + again, "backward_weight_s": 0.8 * forward}
    order = ORDERS[schedule](4, 12, num_chunks=chunks)
    split = bubble_split(order, **times, recompute_s=again, hop_s=0.05)
    work = 12 / 4 * float((2.8 * forward).sum())
    assert split.total_ratio == pytest.approx(simulate(order, **times, hop_s=0.05).makespan_s / work - 1.0)
    assert split.recompute_ratio == pytest.approx(3.0 * again.sum() / work)
    assert split.communication_ratio > 0.0
    assert split.imbalance_ratio > 0.0


OFFSETS = [
    [-2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    [1, 0, 0, -2, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, -1, 0, 0],
]
FULL = [[1] + [0] * 15, [0, 1] + [0] * 14, [0, 1] + [0] * 14]
SELECT = [
    [1, 3, 3, 0, 3, 3, 3, 3, 3, 3, 3, 2, 2, 1, 0, 0],
    [3, 3, 3, 1, 3, 3, 3, 3, 3, 3, 3, 1, 2, 2, 1, 0],
    [3, 3, 3, 1, 3, 3, 3, 3, 3, 3, 3, 1, 2, 2, 1, 0],
]
COMM = [[1] + [0] * 15, [0, 2] + [0] * 14, [0, 2] + [0] * 14]


def test_published_total_of_a_hand_made_strategy():
    """T6 of the reference, test_sapp_simulate_vpp3: 154184.4, and the peaks that its simulator reports.

    192 layers (its file's description) over 16 stages and 3 chunks; lists are cumulative: select holds BOTH and FULL, too, and
    so does comm. Backward: 2 times the forward, and full 0.5, selective and communication 0.125, both 0.165 of that again.
    """
    layers = 192 // 48 + np.array(OFFSETS)
    full, select, comm = np.array(FULL), np.array(SELECT), np.array(COMM)
    both = np.minimum(select, comm) - full
    kinds = {"full": full, "both": both, "slct": select - full - both, "comm": comm - full - both}
    assert all((counts >= 0).all() for counts in kinds.values())
    coefficient = {"full": 0.5, "both": 0.165, "slct": 0.125, "comm": 0.125}
    activation = {"full": 32.0, "both": 310.0, "slct": 614.0, "comm": 426.0}
    forward = 180.0 * layers
    forward[0, 0] += 30.0
    forward[2, 15] += 90.0
    again = sum(2.0 * 180.0 * coefficient[kind] * counts for kind, counts in kinds.items())
    kept = 826.0 * (layers - sum(kinds.values())) + sum(activation[kind] * counts for kind, counts in kinds.items())
    static = 1583.0 * layers.sum(axis=0)
    static[0] += 11000.0
    static[15] += 2473.0
    times, _ = pipeline(forward, again)
    order = ORDERS["interleaved-less-memory"](16, 16, num_chunks=3)
    timeline = simulate(order, **times, activation=kept.T)
    assert timeline.makespan_s == pytest.approx(154184.4, abs=1e-6)
    peaks = [
        155532,
        116926,
        141724,
        146729,
        136388,
        133720,
        131052,
        128384,
        125716,
        115683,
        120380,
        130008,
        122676,
        119127,
        127516,
        130501,
    ]
    np.testing.assert_allclose(static + timeline.peak_held, peaks, atol=1e-6)


@pytest.mark.parametrize(
    ("microbatches", "total", "peaks"), [(9, 63, (12, 10, 8, 6)), (10, 69, (13, 11, 9, 7)), (11, 75, (14, 12, 10, 8))]
)
def test_its_first_group_is_longer_where_stages_do_not_divide_microbatches(microbatches, total, peaks):
    """By design: SAPP's first group takes the rest (P + r, then P), ours is Megatron's smallest legal group for all but the last.

    Both fill once, so alike stages take equally long; from m = 2 P + 2 on ours holds less. Figures are its simulator's.
    """
    order = ORDERS["interleaved"](4, microbatches, num_chunks=2)
    timeline = simulate(order, forward_s=1.0, backward_input_s=2.0, backward_weight_s=0.0)
    assert timeline.makespan_s == total
    assert (timeline.peak_held <= peaks).all()
    assert (timeline.peak_held < peaks).all() == (microbatches > 9)

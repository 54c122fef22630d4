"""The fit finds constants that made the runs, borrows from kin, shrugs at mistaken rows, and says how sure it is."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import cluster_for, device, freedoms, key_for, priors
from meshwright.domain.calibration import CalibrationTable, Freedom, Key, Offsets, fitted_constants
from meshwright.domain.uncertainty import FitCurve, Scale
from meshwright.estimate import estimate
from meshwright.evidence.fit import fitters
from meshwright.evidence.fit.bounded import bounded
from meshwright.evidence.fit.calibrate import effect_needed, outside
from meshwright.evidence.fit.fitters import Pooled
from meshwright.evidence.fit.own import added, calibrate_on_top, own_freedoms
from meshwright.evidence.fit.pooling import ceilings_of, pooling
from meshwright.evidence.fit.solve import _shares, fit, refit
from meshwright.evidence.fit.spread import (
    Elsewhere,
    Unseen,
    conformal_quantile,
    fit_curve,
    fit_scale,
    shifts,
    weighted_quantile,
)
from meshwright.evidence.rows.groups import folds
from meshwright.evidence.rows.row import Row, row_of
from meshwright.evidence.rows.run import run

LAYOUTS = (
    (1, 1, 8, 1), (2, 1, 4, 2), (4, 1, 2, 4), (8, 1, 1, 8), (2, 2, 2, 2), (4, 2, 1, 1), (1, 2, 4, 2), (1, 4, 2, 1), (2, 4, 1, 4),
    (1, 8, 1, 2), (8, 1, 2, 4), (8, 2, 1, 2), (4, 2, 2, 2), (2, 4, 2, 2), (4, 4, 1, 1), (4, 1, 4, 2), (2, 1, 8, 1), (1, 1, 16, 1),
    (1, 1, 32, 1), (2, 1, 16, 1),
)
"""tp, pp, dp and micro-batch of twenty runs, on one to four nodes."""
NOISE = np.array([0.01, -0.02, 0.0, 0.015, -0.01, 0.02, -0.015, 0.005, -0.005, 0.0] * 2)
FREEDOMS = tuple(
    each for each in freedoms() if each.name in ("gemm_ratio", "memory_ratio", "scale_up_ratio", "network_ratio")
)


def own_row(number: int, tp: int, pp: int, dp: int, mb: int, *, gpu: str = "h800") -> Row:
    """A row in the schema of the corpus, of a Llama-like 8B on an invented cluster."""
    values = {
        "id": f"mine-{number}", "status": "ok", "task": "pretrain", "framework": "megatron-lm", "model": "mine-8b",
        "n_params_B": "8.03",
        "n_layers": "32", "hidden": "4096", "n_heads": "32", "n_kv_heads": "8", "head_dim": "128", "ffn_hidden": "14336",
        "vocab": "128256", "gated_mlp": "1", "attention": "gqa", "gpu": gpu, "n_gpus": str(tp * pp * dp), "gpus_per_node": "8",
        "precision": "bf16", "seq": "4096", "gbs": "64", "mbs": str(mb), "tp": str(tp), "sp": "1" if tp > 1 else "0", "cp": "1",
        "pp": str(pp), "dp": str(dp), "zero": "3" if pp == 1 else "1", "recompute": "none",
    }
    return row_of(values)


def invented(truth: dict[str, float], noise: np.ndarray = NOISE, gpu: str = "h800") -> list:
    """Runs whose step times were made by constants that differ from the priors by known factors."""
    runs = [run(own_row(number, *layout, gpu=gpu)) for number, layout in enumerate(LAYOUTS, start=1)]
    made = []
    for each, error in zip(runs, noise, strict=True):
        prior = each.case.calibration.constants
        constants = replace(prior, **{name: getattr(prior, name) * factor for name, factor in truth.items()})
        case = replace(each.case, calibration=replace(each.case.calibration, constants=constants))
        made.append(replace(each, step_s=estimate(case, each.layout).step_s * float(np.exp(error))))
    return made


TRUTH = {"gemm_ratio": 0.8, "memory_ratio": 0.85, "scale_up_ratio": 0.7, "network_ratio": 0.75}


def base() -> CalibrationTable:
    """A calibration that learnt nothing."""
    scale = Scale(base=-2.0, effects={"framework": {"*": 0.5}, "cell": {"*": 0.0}}, quantiles={"0.9": 1.6})
    return CalibrationTable(
        name="base", version="0", offsets={}, step=scale, memory=scale, fits={"*": FitCurve(edge=-0.05, width=0.05, failures=0.0)},
        ranking_ratio=0.03, seen={}, provenance={}, diagnostics={},
    )


def test_twenty_rows_of_an_invented_cluster_give_its_constants_back() -> None:
    runs = invented(TRUTH)
    groups = ["\x1f".join(each.group) for each in runs]
    table = calibrate_on_top(
        base(),
        runs,
        own_freedoms(FREEDOMS, {}),
        groups=groups,
        fold_of=[index % 5 for index in range(len(runs))],
        name="mine",
        version="1",
        provenance={},
    )
    first = runs[0]
    found = key_for(first.case.cluster, framework="megatron", precision="bf16")
    constants = table.calibration(first.case.calibration.constants, found).constants
    ratios = {name: getattr(constants, name) / getattr(first.case.calibration.constants, name) for name in TRUTH}
    assert ratios["gemm_ratio"] == pytest.approx(TRUTH["gemm_ratio"], rel=0.05)
    assert ratios["scale_up_ratio"] == pytest.approx(TRUTH["scale_up_ratio"], rel=0.12)
    assert ratios["network_ratio"] == pytest.approx(TRUTH["network_ratio"], rel=0.12)
    off = [
        estimate(replace(each.case, calibration=table.calibration(each.case.calibration.constants, found)), each.layout).step_s
        / each.step_s
        for each in runs
    ]
    assert float(np.mean(np.abs(np.array(off) - 1.0))) < 0.03
    assert table.seen["cell"] == {"h800|megatron|bf16": 20}


def test_the_fit_is_deterministic_and_its_order_free() -> None:
    runs = invented(TRUTH)[:8]
    one, two, turned = fit(runs, FREEDOMS), fit(runs, FREEDOMS), fit(runs[::-1], FREEDOMS)
    assert (one.offsets == two.offsets).all()
    ours = one.named_offsets()
    for name, offsets in turned.named_offsets().items():
        for level, values in offsets.by_level.items():
            assert values == pytest.approx(ours[name].by_level[level], abs=2e-3)


def test_a_mistaken_row_has_a_bounded_pull() -> None:
    runs = invented(TRUTH)
    spoilt = [replace(runs[0], step_s=runs[0].step_s * 30.0), *runs[1:]]
    honest, robust = fit(runs, FREEDOMS), fit(spoilt, FREEDOMS)
    index = [freedom.name for freedom in FREEDOMS].index("gemm_ratio")
    moved = robust.pool.multipliers(robust.offsets)[0, index] - honest.pool.multipliers(honest.offsets)[0, index]
    assert abs(moved) < 0.05


def deterministic(runs: list, slower: float) -> list:
    """The same runs, called untuned, in deterministic mode and slower by a factor that no constant explains."""
    made = []
    for number, each in enumerate(runs, start=1):
        row = replace(each.row, id=f"plain-{number}", said=replace(each.row.said, tuning="untuned", deterministic=True))
        case = replace(each.case, launch=replace(each.case.launch, deterministic=True))
        made.append(replace(each, id=row.id, row=row, case=case, step_s=each.step_s * slower))
    return made


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_untuned_runs_move_constants_of_launches_alone(slower) -> None:
    tuned = invented(TRUTH)
    free = (*FREEDOMS, Freedom(name="deterministic_attention_ratio", spreads={"all": 0.4}, launch=True))
    alone, both = fit(tuned, free).named_offsets(), fit(tuned + deterministic(tuned, slower), free).named_offsets()
    for each in FREEDOMS:
        assert alone[each.name].by_level.keys() == both[each.name].by_level.keys()
        for level, values in alone[each.name].by_level.items():
            assert both[each.name].by_level[level] == pytest.approx(values, abs=2e-3)
    assert "deterministic_attention_ratio" not in alone
    if slower > 1.0:
        assert both["deterministic_attention_ratio"].by_level["all"][""] > 0.0


def test_a_held_out_fit_teaches_by_the_same_phases() -> None:
    tuned = invented(TRUTH)
    free = (*FREEDOMS, Freedom(name="deterministic_attention_ratio", spreads={"all": 0.4}, launch=True))
    whole = fit(tuned + deterministic(tuned, 3.0), free)
    without = np.arange(2 * len(tuned)) < len(tuned)
    moved = refit(whole, without)
    launching = np.array([whole.pool.freedoms[constant].launch for constant, _, _ in whole.pool.columns])
    assert moved[~launching] == pytest.approx(whole.offsets[~launching], abs=1e-6)
    assert abs(moved[launching][0]) < 0.1 * whole.offsets[launching][0]


def test_a_device_without_runs_borrows_from_its_family() -> None:
    free = (Freedom(name="gemm_ratio", spreads={"family": 0.3, "device": 0.05}, maximum=0.95),)
    found = fit(invented({"gemm_ratio": 0.75}), free)
    cluster = cluster_for("h200", num_devices=8)
    h200 = cluster.device
    prior = priors(h200).constants
    key = key_for(cluster, framework="megatron", precision="bf16")
    assert h200.family == device("h800").family
    moved = fitted_constants(prior, found.named_offsets(), key)
    assert float(moved.gemm_ratio) == pytest.approx(0.75 * float(prior.gemm_ratio), rel=0.08)


def test_held_out_predictions_do_not_see_their_fold() -> None:
    """A fold whose runs are all twice as slow cannot pull its own predictions."""
    runs = invented(TRUTH)
    slow = [replace(each, step_s=each.step_s * (2.0 if index < 4 else 1.0)) for index, each in enumerate(runs)]
    folds = np.array([0] * 4 + [1] * 8 + [2] * 8)
    held = [outside(fit(each, FREEDOMS), folds)[0].step[:4] for each in (runs, slow)]
    assert held[1] == pytest.approx(held[0], abs=0.02)


def test_no_constant_passes_its_maximum() -> None:
    offsets = Offsets(by_level={"all": {"": 3.0}}, maximum=0.95)
    key = Key(device="d", device_family="f", cluster="c", framework="w", release="", precision="p")
    assert offsets.apply(0.7, key) == 0.95
    assert Offsets(by_level={"device": {"other": 1.0}}).apply(0.7, key) == 0.7


def test_no_constant_passes_what_was_reached_on_its_device() -> None:
    free = Freedom(name="gemm_ratio", spreads={"all": 1.0}, maximum=0.95, reached={"d": 0.8})
    offsets = Offsets(by_level={"all": {"": 3.0}}, maximum=free.maximum, reached=free.reached)
    key = Key(device="d", device_family="f", cluster="c", framework="w", release="", precision="p")
    other = replace(key, device="e")
    assert (offsets.apply(0.7, key), offsets.apply(0.7, other)) == (0.8, 0.95)
    assert ceilings_of([free, Freedom(name="launch_s", spreads={})], [key, other]).tolist() == [[0.8, np.inf], [0.95, np.inf]]


def test_a_fit_stays_under_what_was_reached_on_its_device() -> None:
    """Runs that ask for more than the device does leave it at its ceiling, and predict what it allows."""
    runs = invented({"gemm_ratio": 1.2})
    most = 1.05 * float(runs[0].case.calibration.constants.gemm_ratio)
    free = Freedom(name="gemm_ratio", spreads={"all": 0.5}, reached={runs[0].device: most})
    found = fit(runs, (free,))
    of_device = [index for index, each in enumerate(runs) if each.device == runs[0].device]
    values = [found.runs.values(index, found.pool.multipliers(found.offsets), found.ceilings)[0] for index in of_device]
    assert values == pytest.approx([most] * len(values))


def test_own_runs_move_a_constant_from_its_maximum() -> None:
    key = Key(device="d", device_family="f", cluster="c", framework="w", release="", precision="p")
    offsets = Offsets(by_level={"all": {"": 3.0}, "own": {"d|w|p": -0.5, "d|w|q": 9.0}}, maximum=0.95)
    assert offsets.apply(0.7, key) == pytest.approx(0.95 * float(np.exp(-0.5)))
    assert offsets.apply(0.7, replace(key, precision="q")) == 0.95


def test_offsets_of_two_fits_add() -> None:
    both = added(
        {"a": Offsets(by_level={"all": {"": 0.1}})},
        {"a": Offsets(by_level={"all": {"": 0.2}, "cell": {"x": -0.1}}), "b": Offsets(by_level={})},
    )
    assert both["a"].by_level == {"all": {"": pytest.approx(0.3)}, "cell": {"x": -0.1}}


def test_pooling_counts_every_level_once() -> None:
    keys = [Key(device=d, device_family="f", cluster="c", framework=w, release="", precision="p") for d in "ab" for w in "xy"]
    free = (Freedom(name="gemm_ratio", spreads={"all": 0.1, "device": 0.1, "framework": 0.1, "cell": 0.1}),)
    pool = pooling(free, keys)
    assert pool.size == 1 + 2 + 2 + 4
    offsets = np.arange(1.0, pool.size + 1.0)
    by_hand = [sum(offsets[column] for column in row) for row in pool.member[0]]
    assert pool.multipliers(offsets)[:, 0] == pytest.approx(by_hand)


def test_normal_equations_are_those_of_the_whole_design() -> None:
    keys = [Key(device=d, device_family="f", cluster="c", framework=w, release="", precision="p") for d in "ab" for w in "xy"]
    free = (
        Freedom(name="gemm_ratio", spreads={"all": 0.1, "device": 0.1, "framework": 0.1, "cell": 0.1}),
        Freedom(name="launch_s", spreads={"all": 0.1}),
    )
    pool, random = pooling(free, keys), np.random.default_rng(5)
    key_of = np.array([0, 3, 1, 1, 0, 3, 3])
    jacobian, factor, residual = random.normal(size=(7, 2)), random.random(7), random.normal(size=7)
    design = np.zeros((7, pool.size))
    for row, key in enumerate(key_of):
        for constant, member in enumerate(pool.member):
            design[row, member[key]] = jacobian[row, constant]
    matrix, right = pool.normal_equations(jacobian, key_of, factor, residual)
    assert matrix == pytest.approx(design.T @ (design * factor[:, None]))
    assert right == pytest.approx(design.T @ (factor * residual))


def test_the_fit_curve_is_the_likeliest_of_its_grid() -> None:
    """Against the plain sum over runs at every edge, width and share nearby."""
    random = np.random.default_rng(2)
    ratio, weights = random.normal(0.0, 0.3, 300), random.random(300) + 0.1
    ran = (random.random(300) < 1.0 / (1.0 + np.exp((ratio + 0.05) / 0.05))) & (random.random(300) > 0.1)
    found = fit_curve(ratio, ran, weights)

    def loss(edge: float, width: float, failures: float) -> float:
        p = np.clip((1.0 - failures) / (1.0 + np.exp(np.clip((ratio - edge) / width, -60.0, 60.0))), 1e-6, 1.0 - 1e-6)
        return -float((weights * np.where(ran, np.log(p), np.log1p(-p))).sum())

    best = loss(found.edge, found.width, found.failures)
    assert best <= min(
        loss(found.edge + edge, found.width * width, min(1.0, max(0.0, found.failures + share)))
        for edge in (-0.02, 0.0, 0.02) for width in (0.8, 1.0, 1.25) for share in (-0.03, 0.0, 0.03)
    ) + 1e-3


@given(st.lists(st.floats(0.001, 2.0), min_size=12, max_size=80))
def test_a_conformal_quantile_covers_its_own_scores(scores: list[float]) -> None:
    values, weights = np.array(scores), np.ones(len(scores))
    limit = conformal_quantile(values, weights, 0.9)
    assert (values <= limit).mean() >= 0.9


def elsewhere(spread: float, **hidden: float) -> Elsewhere:
    """Sixty runs of six sources, of cells that nobody else has, over intervals so many times too narrow."""
    parts = hidden or {"cell": 1.0, "framework": 0.0}
    return Elsewhere(
        scores=np.abs(np.random.default_rng(9).normal(0.0, spread, 60)), weights=np.ones(60), voices=np.arange(60) % 6,
        hidden={name: np.full(60, part) for name, part in parts.items()},
    )


def strangers(found: Elsewhere) -> dict[str, Elsewhere]:
    """What sources left out say of cells and, beyond them, of frameworks."""
    return {"cell": found, "framework": found}


def test_intervals_are_as_wide_as_their_regime() -> None:
    rng = np.random.default_rng(5)
    quiet, loud = rng.normal(0.0, 0.03, 400), rng.normal(0.0, 0.3, 400)
    features = [{"framework": "a", "cell": "a h"}] * 400 + [{"framework": "b", "cell": "b h"}] * 400
    scale = fit_scale(np.concatenate([quiet, loud]), features, np.ones(800), elsewhere=strangers(elsewhere(5.0)))
    for values, feature in ((quiet, features[0]), (loud, features[-1])):
        covered = float((np.abs(values) <= scale.half_width(feature)).mean())
        assert 0.85 <= covered <= 0.95
    unseen = scale.half_width({"framework": "c", "cell": "c h"})
    assert unseen > scale.half_width(features[0])


def test_a_cell_of_few_runs_is_nearly_as_little_known_as_one_without() -> None:
    rng = np.random.default_rng(5)
    widths = []
    for few in (2, 15, 150):
        features = [{"framework": "a", "cell": "a h"}] * 400 + [{"framework": "a", "cell": "a b"}] * few
        residuals = rng.normal(0.0, 0.05, 400 + few)
        scale = fit_scale(residuals, features, np.ones(400 + few), elsewhere=strangers(elsewhere(6.0)))
        known, unseen = (math.log(scale.half_width({"framework": "a", "cell": cell})) for cell in ("a h", "a c"))
        widths.append((math.log(scale.half_width(features[-1])) - known) / (unseen - known))
    assert 0.7 < widths[0] < 1.0
    assert 0.3 < widths[1] < 0.7
    assert widths[2] < 0.25


def test_nine_of_ten_runs_of_cells_without_kin_are_held_and_runs_of_one_source_count_as_their_root() -> None:
    """Nineteen sources of ten runs that miss by up to three intervals, one of forty that misses by a hundred: 17 % of the runs, but
    6.3 of 66.4 in weight."""
    sources = np.array([number for number in range(19) for _ in range(10)] + [19] * 40)
    errors = np.concatenate([np.random.default_rng(2).uniform(-3.0, 3.0, 190), np.full(40, 100.0)])
    found = Elsewhere(
        scores=np.abs(errors), weights=np.ones(230), voices=sources, hidden={"cell": np.ones(230), "framework": np.zeros(230)}
    )
    learnt = shifts(strangers(found))
    assert 2.7 < math.sqrt(1.0 + learnt["cell"]) < 3.4
    assert learnt["framework"] == 0.0
    alone = shifts(strangers(replace(found, voices=np.arange(230))))
    assert alone["cell"] > 5.0 * learnt["cell"]


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_each_variance_is_the_one_that_holds_nine_of_ten_of_its_runs_beside_the_others(size: float, cell: float) -> None:
    z = np.abs(np.random.default_rng(3).normal(0.0, 1.0, 800)) / 1.645
    runs = {
        name: Elsewhere(
            scores=z * math.sqrt(1.0 + extra), weights=np.ones(800), voices=np.arange(800),
            hidden={"size": np.ones(800), "cell": np.full(800, float(name == "cell"))},
        )
        for name, extra in (("size", size), ("cell", size + cell))
    }
    learnt = shifts(runs)
    assert float((runs["size"].scores <= math.sqrt(1.0 + learnt["size"])).mean()) == pytest.approx(0.9, abs=0.05)
    assert float((runs["cell"].scores <= math.sqrt(1.0 + sum(learnt.values()))).mean()) == pytest.approx(0.9, abs=0.05)


def test_nothing_is_shared_where_nothing_was_measured_elsewhere_or_nothing_is_hidden() -> None:
    none = elsewhere(5.0).of(np.zeros(60, dtype=bool))
    assert shifts(strangers(none)) == {"cell": 0.0, "framework": 0.0}
    assert shifts({"cell": elsewhere(5.0, cell=0.0)}) == {"cell": 0.0}


def test_runs_elsewhere_teach_only_where_they_were_measured_and_are_used() -> None:
    found = elsewhere(5.0)
    broken = replace(found, scores=np.where(np.arange(60) < 30, np.nan, found.scores))
    chosen = broken.of(np.ones(60, dtype=bool))
    assert len(chosen.scores) == len(chosen.weights) == len(chosen.hidden["cell"]) == 30
    assert len(found.of(np.arange(60) < 7).voices) == 7
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.9) == 2.0


def test_the_fit_curve_finds_the_edge() -> None:
    ratio = np.linspace(-0.6, 0.4, 600)
    rng = np.random.default_rng(7)
    p = 0.94 / (1.0 + np.exp((ratio + 0.1) / 0.04))
    curve = fit_curve(ratio, rng.random(600) < p, np.ones(600))
    assert curve.edge == pytest.approx(-0.1, abs=0.04)
    assert curve.failures == pytest.approx(0.06, abs=0.04)
    assert curve.memory_probability(np.array(curve.usable_bytes(80e9)), 80e9) == pytest.approx(0.5)
    assert curve.usable_bytes(80e9, 0.9) < curve.usable_bytes(80e9, 0.5)


def test_a_kind_of_launch_without_runs_is_as_uncertain_as_it_was_found_to_be_and_one_with_runs_as_they_say() -> None:
    rng = np.random.default_rng(3)
    features = [{"framework": "a", "cell": "a h", "launch": each} for each in ["tuned"] * 100 + ["natural routing"] * 100]
    unseen = {"plain": 1.5, "natural routing": 2.5}
    scale = fit_scale(rng.normal(0.0, 0.05, 200), features, np.ones(200), launches=unseen)
    widths = {each: scale.half_width({**features[0], "launch": each}) for each in ("tuned", "natural routing", "plain", "else")}
    assert widths["natural routing"] == pytest.approx(widths["tuned"], rel=0.3)
    assert widths["plain"] > 3.0 * widths["tuned"] > 2.0 * widths["else"]


@given(st.floats(-1.0, 1.0), st.floats(0.0, 20.0), st.floats(1e-4, 4.0))
def test_the_effect_of_a_launch_is_the_least_that_holds_an_error_beside_what_is_shared(cell: float, u: float, size: float) -> None:
    scale = Scale(
        base=-3.0, effects={"cell": {"a": cell, "*": 0.0}, "launch": {"tuned": 0.3, "*": 0.1}}, quantiles={"0.9": 2.0},
        shifts={"cell": u}, runs={"cell": {}}, growth=0.25,
    )
    features = {"cell": "a", "launch": "plain"}

    def width(effect: float) -> float:
        return replace(scale, effects={**scale.effects, "launch": {"plain": effect}}).half_width(features)

    effect = effect_needed(scale, features, size)
    assert width(effect) >= size
    assert effect == 0.0 or width(effect - 1e-4) < size


def test_runs_of_one_configuration_count_as_one_together_where_weights_are_squared() -> None:
    assert _shares(["a"] * 4 + ["b"]) == pytest.approx([0.5] * 4 + [1.0])
    assert _shares(["b", "a", "b"]) == pytest.approx([2**-0.5, 1.0, 2**-0.5])


def test_a_fold_is_judged_by_the_others_runs(monkeypatch) -> None:
    """Its certainty is learnt without the runs that it is tried on."""
    runs = [
        replace(each, memory_bytes=estimate(each.case, each.layout).memory_reserved_bytes * float(np.exp(error)))
        for each, error in zip(invented(TRUTH)[:12], NOISE, strict=False)
    ]
    monkeypatch.setattr(fitters, "predictor_of", lambda table: table)
    nobody = Elsewhere(
        scores=np.full(12, np.nan), hidden={"cell": np.ones(12)}, weights=np.ones(12), voices=np.zeros(12, dtype=np.int64)
    )
    monkeypatch.setattr(fitters, "unseen_effects", lambda *_: Unseen(step={"cell": nobody}))
    tables = Pooled(freedoms=FREEDOMS[:1]).fit_folds(runs, [0] * 5 + [1] * 4 + [2] * 3)
    assert [table.diagnostics["runs"] for table in tables] == [7, 8, 9]
    whole = fit(runs, FREEDOMS[:1], groups=["\x1f".join(each.group) for each in runs])
    outer, _ = outside(whole, np.array(folds([each.row for each in runs], "grouped")))
    left = np.abs(outer.residuals(whole)[0])
    others = ([*range(5, 12)], [*range(5), *range(9, 12)], [*range(9)])
    medians = [float(np.expm1(np.median(left[places]))) for places in others]
    assert [table.diagnostics["median_step_error_ratio"] for table in tables] == pytest.approx(medians, abs=1e-4)


@given(seed=st.integers(0, 10_000), tight=st.floats(0.0, 0.3))
def test_a_bounded_minimum_is_the_lowest_of_all_that_keep_the_bounds(seed: int, tight: float) -> None:
    """By Lagrange's equations for every choice of bounds that bind: the lowest that passes none."""
    random = np.random.default_rng(seed)
    keys = [Key(device=d, device_family="f", cluster="c", framework=w, release="", precision="p") for d in "ab" for w in "xy"]
    pool = pooling((Freedom(name="gemm_ratio", spreads={"all": 0.1, "device": 0.1, "framework": 0.1}),), keys)
    pool = replace(pool, room=np.full((len(keys), 1), tight))
    slopes = random.normal(size=(8, pool.size))
    normal, right = slopes.T @ slopes + np.eye(pool.size), 3.0 * random.normal(size=pool.size)
    found = bounded(normal, right, np.zeros(pool.size), pool, np.ones(pool.size, dtype=bool))
    sums = np.array([[float(column in row) for column in range(pool.size)] for row in pool.member[0].tolist()])

    def cost(z):
        return 0.5 * z @ normal @ z - right @ z

    best = math.inf
    for binds in product((False, True), repeat=len(keys)):
        rows = sums[list(binds)]
        equations = np.block([[normal, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        z = np.linalg.lstsq(equations, np.concatenate([right, np.full(len(rows), tight)]), rcond=None)[0][: pool.size]
        if float((sums @ z).max()) <= tight + 1e-9:
            best = min(best, cost(z))
    assert float((pool.multipliers(found) - pool.room).max()) < 1e-4
    assert cost(found) == pytest.approx(best, abs=1e-3)


@given(seed=st.integers(0, 10_000), alone=st.integers(0, 6))
def test_offsets_that_nothing_couples_are_solved_as_the_others_are(seed: int, alone: int) -> None:
    """Levels whose runs say nothing of a constant keep their priors; whether a bound holds them or not, the minimum is the same."""
    random = np.random.default_rng(seed)
    keys = [Key(device=d, device_family="f", cluster="c", framework=w, release="", precision="p") for d in "ab" for w in "xy"]
    pool = pooling((Freedom(name="gemm_ratio", spreads={"all": 0.1, "device": 0.1, "framework": 0.1}),), keys)
    pool = replace(pool, room=np.full((len(keys), 1), 0.05))
    slopes = random.normal(size=(8, pool.size))
    slopes[:, random.permutation(pool.size)[:alone]] = 0.0
    normal, right = slopes.T @ slopes + np.eye(pool.size), 3.0 * random.normal(size=pool.size)
    free = np.ones(pool.size, dtype=bool)
    found = bounded(normal, right, np.zeros(pool.size), pool, free)
    shaken = normal + 1e-13 * (np.ones_like(normal) - np.eye(pool.size))  # nothing is nought any more
    assert found == pytest.approx(bounded(shaken, right, np.zeros(pool.size), pool, free), abs=1e-6)


def test_what_a_ceiling_stops_moves_no_other_framework() -> None:
    """Runs that ask for twice what a device can do leave its kin where their own runs have them."""
    keys = [Key(device="d", device_family="f", cluster="c", framework=w, release="", precision="p") for w in "xy"]
    pool = pooling((Freedom(name="gemm_ratio", spreads={"all": 0.1, "framework": 0.1}),), keys)
    room = np.array([[0.05], [0.05]])
    (asks, column) = (pool.member[0][0], np.zeros(pool.size))
    column[asks] = 1.0
    normal, right = np.diag(1.0 / pool.spreads**2) + 1e4 * np.outer(column, column), 1e4 * math.log(2.0) * column
    free = np.ones(pool.size, dtype=bool)
    loose = pool.multipliers(bounded(normal, right, np.zeros(pool.size), pool, free))
    held = pool.multipliers(bounded(normal, right, np.zeros(pool.size), replace(pool, room=room), free))
    assert loose[1, 0] > 0.3
    assert held[0, 0] == pytest.approx(0.05, abs=3e-3)
    assert held[1, 0] == pytest.approx(0.025, abs=3e-3)

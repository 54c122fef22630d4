"""What few or no runs hide: more kin never widen an interval, a new value is never narrower, nearer kin say no less."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from meshwright.domain.uncertainty import Scale, doublings_apart

VARIANCES = st.floats(0.0, 30.0)
COUNTS = st.floats(0.0, 500.0)
PLACES = st.lists(st.floats(0.0, 20.0).map(lambda each: f"{each:.1f}"), min_size=4, max_size=4).map("x".join)
MODELS = st.dictionaries(PLACES.map(lambda place: f"a h dense {place}"), COUNTS, max_size=6)
FEATURES = {"framework": "a", "cell": "a h dense", "size": "a h dense 6", "model": "a h dense 12.0x5.0x15.6x0.0"}


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    """Scales of any regime, variances, runs and reach."""
    return Scale(
        base=-3.0, effects={"cell": {"a h dense": draw(st.floats(-2.0, 2.0)), "*": 0.0}}, quantiles={"0.9": 2.0},
        shifts={name: draw(VARIANCES) for name in ("size", "model", "cell", "framework")},
        runs={
            "size": {"a h dense 6": draw(COUNTS)}, "model": draw(MODELS), "cell": {"a h dense": draw(COUNTS)},
            "framework": {"a": draw(COUNTS)},
        },
        reaches={"model": draw(st.floats(0.1, 20.0))}, growth=draw(st.floats(0.0, 1.0)),
    )


@given(scales(), st.sampled_from(["size", "model", "cell", "framework"]), COUNTS, PLACES)
def test_more_runs_of_anything_never_widen(scale: Scale, feature: str, more: float, place: str) -> None:
    value = f"a h dense {place}" if feature == "model" else FEATURES[feature]
    counts = {**scale.runs[feature], value: scale.runs[feature].get(value, 0.0) + more}
    richer = replace(scale, runs={**scale.runs, feature: counts})
    assert richer.half_width(FEATURES) <= scale.half_width(FEATURES) * (1.0 + 1e-12)


@given(scales(), COUNTS)
def test_a_new_model_is_never_narrower_than_one_with_runs_nor_than_the_regime_alone(scale: Scale, count: float) -> None:
    known = replace(scale, runs={**scale.runs, "model": {**scale.runs["model"], FEATURES["model"]: count}})
    alone = replace(scale, shifts={}, runs={})
    assert alone.half_width(FEATURES) <= known.half_width(FEATURES) * (1.0 + 1e-12)
    assert known.half_width(FEATURES) <= scale.half_width(FEATURES) * (1.0 + 1e-12)
    unheard = {**FEATURES, "model": "a h dense 99.0x99.0x99.0x99.0"}
    assert scale.half_width(FEATURES) <= scale.half_width(unheard) * (1.0 + 1e-12)


@given(scales(), st.floats(0.0, 8.0), st.floats(0.0, 8.0), COUNTS)
def test_nearer_kin_say_no_less(scale: Scale, one: float, other: float, count: float) -> None:
    def width(apart: float) -> float:
        kin = {f"a h dense {12.0 + round(apart, 1):.1f}x5.0x15.6x0.0": count}
        return replace(scale, runs={**scale.runs, "model": kin}).half_width(FEATURES)

    near, far = sorted((one, other))
    assert width(near) <= width(far) * (1.0 + 1e-12)


@given(scales())
def test_each_part_is_between_nought_and_all_of_what_is_shared(scale: Scale) -> None:
    """In a usual regime; elsewhere it is that over how much louder the regime is."""
    loud = math.exp(2.0 * (1.0 - scale.growth) * scale.effects["cell"]["a h dense"])
    for part in scale.hidden(FEATURES).values():
        assert -1e-12 <= part * loud <= 1.0 + 1e-12


@given(scales())
def test_what_is_shared_is_the_same_in_quiet_and_loud_regimes_where_it_does_not_grow(scale: Scale) -> None:
    def shared(effect: float) -> float:
        each = replace(scale, growth=0.0, runs={name: {} for name in scale.runs}, effects={"cell": {"a h dense": effect}})
        return each.spread(FEATURES) ** 2 - math.exp(2.0 * (each.base + effect))

    assert shared(1.0) == pytest.approx(shared(-1.0), rel=1e-9, abs=1e-12)


@given(VARIANCES, VARIANCES, COUNTS)
def test_variances_add_up_and_runs_leave_their_share(cell: float, size: float, count: float) -> None:
    scale = Scale(
        base=-2.0, effects={}, quantiles={"0.9": 2.0}, shifts={"cell": cell, "size": size},
        runs={"cell": {"known": count}, "size": {}},
    )
    known, new = scale.half_width({"cell": "known", "size": "any"}), scale.half_width({"cell": "new", "size": "any"})
    variances = [(width / (2.0 * math.exp(-2.0))) ** 2 for width in (known, new)]
    assert variances == pytest.approx([1.0 + size + cell / (1.0 + count), 1.0 + size + cell])


@given(scales(), st.floats(-2.0, 2.0))
def test_own_runs_move_the_whole_width_of_their_cell_and_no_other(scale: Scale, move: float) -> None:
    taught = replace(scale, own={"a h dense": move})
    assert taught.spread(FEATURES) == pytest.approx(scale.spread(FEATURES) * math.exp(move))
    other = {**FEATURES, "cell": "a b dense"}
    assert taught.spread(other) == scale.spread(other)


def test_values_of_another_kind_are_no_kin() -> None:
    others = ["a h dense 12.0x5.0", "a h dense 13.0x6.5", "a h moe 12.0x5.0", "a h dense fp8 12.0x5.0", "*"]
    assert doublings_apart("a h dense 12.0x5.0", others) == {"a h dense 12.0x5.0": 0.0, "a h dense 13.0x6.5": 2.5}
    assert doublings_apart("*", others) == {}

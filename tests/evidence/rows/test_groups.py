"""Groups and folds: what belongs together stays together, whatever the order and the ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence.scored_rows import row, steady

from meshwright.evidence.rows.groups import FOLDS, SCHEMES, device_key, folds, group_key, settings_key, source_group
from meshwright.evidence.rows.table import shipped_table


def corpus():
    """Rows of the shipped table."""
    return shipped_table().rows


@pytest.mark.parametrize(
    ("id_", "group"),
    [
        ("playbook-0001", "playbook"),
        ("nv0001", "nv"),
        ("vtrain-m-0016", "vtrain-m"),
        ("a-b", "a"),
        ("mine", "mine"),
        ("12", "rows"),
    ],
)
def test_the_source_group_is_the_id_up_to_its_last_dash_or_digits(id_, group):
    assert source_group(id_) == group


def test_every_source_of_the_corpus_is_a_group():
    assert {source_group(each.id) for each in corpus()} >= {"playbook", "fail", "nv", "vtrain-m", "vtrain-s", "bloom", "ascend-st"}


def test_folds_keep_groups_together_and_are_balanced():
    found = folds(corpus(), "grouped")
    of_group: dict[tuple[str, ...], set[int]] = {}
    for each, fold in zip(corpus(), found, strict=True):
        of_group.setdefault(group_key(each), set()).add(fold)
    assert all(len(each) == 1 for each in of_group.values())
    sizes = Counter(found)
    assert set(sizes) == set(range(FOLDS))
    assert max(sizes.values()) - min(sizes.values()) <= 20
    playbook = Counter(fold for each, fold in zip(corpus(), found, strict=True) if each.id.startswith("playbook-"))
    assert max(playbook.values()) - min(playbook.values()) <= 10


@pytest.mark.parametrize("scheme", SCHEMES)
@steady
@given(random=st.randoms(use_true_random=False))
def test_folds_do_not_depend_on_the_order_or_the_number_in_the_id(scheme, random):
    rows = [replace(each, id=f"{source_group(each.id)}-{index}") for index, each in enumerate(corpus()[:300])]
    by_content = dict(zip((replace(each, id="") for each in corpus()[:300]), folds(corpus()[:300], scheme), strict=True))
    random.shuffle(rows)
    for each, fold in zip(rows, folds(rows, scheme), strict=True):
        assert by_content[replace(each, id="")] == fold


def test_schemes_hold_out_what_they_name():
    for scheme, key in (("leave-one-model-out", "model"), ("leave-one-cluster-size-out", "n_gpus")):
        found = folds(corpus(), scheme)
        values = {(each.word(key).lower(), fold) for each, fold in zip(corpus(), found, strict=True)}
        assert len(values) == len({value for value, _ in values}) == len({fold for _, fold in values})
    assert set(folds(corpus(), "in-sample")) == {-1}


def test_re_measurements_share_a_group_and_settings_do_not():
    one, other = row(zero="0", vpp="1", framework_version="1"), row(zero="1", vpp="", framework_version="2", precision="bf16-amp")
    assert group_key(one) == group_key(other)
    assert settings_key(one) != settings_key(other)
    assert settings_key(row(vpp="1")) == settings_key(row(vpp=""))
    assert group_key(row(mbs="2")) != group_key(row(mbs="1"))


@pytest.mark.parametrize(
    ("name", "key"),
    [("h100-80g-sxm", "h100-sxm"), ("ascend-910b(Atlas 900 A2 PODc)", "ascend-910b"), ("TPU v5p", "tpu v5p")],
)
def test_devices_are_known_by_the_catalogue_s_name(name, key):
    assert device_key(name) == key

"""Every finding has something that helps, in keys that the frameworks have."""

from __future__ import annotations

import re

import pytest

from meshwright.diagnose.complaints import complaints
from meshwright.diagnose.diagnosis import KNOBS
from meshwright.diagnose.remedies import _table, actions, remedies
from meshwright.frameworks import framework, frameworks
from meshwright.readers.signs import by_id


def test_actions_that_frameworks_name_are_those_that_help():
    for name in frameworks():
        assert set(framework(name).actions) <= actions(), name


@pytest.mark.parametrize("name", frameworks())
def test_keys_of_actions_are_keys_of_the_framework(name):
    """In some release; words in brackets and values behind a colon are no keys."""
    own = framework(name)
    known = own.surface().keys if own.surface is not None else {}
    for action, keys in own.actions.items():
        for key in re.findall(r"--[a-z0-9-]+|[a-z_]+(?:\.[a-z0-9_]+)+", re.sub(r"\(.*?\)|: [A-Z_]+", "", keys)):
            assert (
                not known
                or key in known
                or key.split(".")[-1] in known
                or any(each.endswith(key.split(".", 1)[-1]) for each in known)
            ), f"{name} {action}: {key}"


def test_complaints_are_signs_that_are_read():
    assert set(complaints()) <= set(by_id())
    assert {each.remedy for each in complaints().values()} - {""} <= set(_table())


def test_knobs_belong_to_findings_with_remedies():
    assert set(KNOBS) <= set(_table())


def test_what_a_framework_cannot_do_is_left_out():
    bare, chatlearn = remedies("communication.tp", None), remedies("communication.tp", framework("chatlearn"))
    assert len(chatlearn) < len(bare)
    assert any("--tensor-model-parallel-size" in each for each in remedies("communication.tp", framework("megatron")))
    assert remedies("nothing of the kind", None) == ()


TRAINERS = {"verl": ("verl-megatron", "verl-fsdp"), "nemo-rl": ("nemo-rl-megatron", "nemo-rl-dtensor"), "slime": ("slime",)}
NO_KEYS = {
    "train_async.py": "a program of slime's", "NRL_REFIT_BUFFER_MEMORY_RATIO": "a variable of NeMo-RL's",
    "separate_async": "a value of verl's trainer_mode", "num_loading_workers": "of each entry of nanotron's list data_stages",
}
KEY = re.compile(r"--[a-z0-9-]+|[A-Z]+(?:_[A-Z]+)+|[a-z]+_async\.py|[a-z_0-9]+(?:\.[a-z_0-9]+)+|[a-z]+(?:_[a-z0-9]+)+")


def surely_known(key, known):
    """A key of the surface, its last names, or a section that holds keys."""
    inside = any(each.endswith(f".{key}") or each.startswith(f"{key}.") for each in known)
    return key in NO_KEYS or key in known or inside


def keys_of(names):
    return {key for name in names for key in framework(name).surface().keys}


ROWS = [
    (finding, trainer, text)
    for finding, rows in _table().items() for each in rows for trainer, text in each.get("keys", {}).items()
]


@pytest.mark.parametrize(("finding", "trainer", "text"), ROWS)
def test_every_key_of_a_remedy_is_one_of_the_trainers_surface(finding, trainer, text):
    known = keys_of(TRAINERS[trainer])
    assert [key for key in KEY.findall(re.sub(r"=\w+", "", text)) if not surely_known(key, known)] == []


@pytest.mark.parametrize("name", [name for name in frameworks() if framework(name).surface is not None])
def test_every_key_of_an_action_is_one_of_the_frameworks_surface(name):
    """Names without dots as well, and each in full."""
    own = framework(name)
    keys = [key for text in own.actions.values() for key in KEY.findall(re.sub(r"\(.*?\)|: [A-Z_]+", "", text))]
    assert [key for key in keys if not surely_known(key, own.surface().keys)] == []
    assert [each.key for each in own.facts.remedies if each.key and not surely_known(each.key, own.surface().keys)] == []

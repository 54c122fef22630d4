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

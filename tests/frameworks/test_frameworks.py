from __future__ import annotations

import importlib.metadata
import logging
from importlib.metadata import EntryPoint
from unittest.mock import patch

import pytest
from megatron_cases import case_of, layout_of

import meshwright.frameworks as package
from meshwright.catalog.implementations import implementations
from meshwright.errors import InputError
from meshwright.frameworks import GROUP, framework, frameworks

LOGGED = patch.object(logging.getLogger(package.__name__), "warning")
CONTRACT = [
    "megatron",
    "bridge",
    "megatron-deepspeed",
    "deepspeed",
    "chatlearn",
    "verl-megatron",
    "verl-fsdp",
    "mindspeed-core-ms",
    "mindformers",
    "mindspeed-llm",
    "nanotron",
    "picotron",
    "torchtitan",
    "accelerate",
    "llama-factory-hf",
    "llama-factory-megatron",
    "ms-swift-megatron",
    "nemo-rl-megatron",
    "nemo-rl-dtensor",
    "slime",
]


def _forget() -> None:
    for each in (package._registry, package.plugins, frameworks):
        each.cache_clear()


@pytest.fixture
def fresh(monkeypatch):
    """A registry that is read anew, with the given entry points."""

    def read(*points: EntryPoint) -> None:
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
        _forget()

    yield read
    _forget()


def test_all_names_of_the_contract_are_known():
    assert set(frameworks()) == set(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_a_framework_is_found_under_its_names_and_says_consistent_things(name):
    found = framework(name)
    assert found.features.name == name
    assert found.implementation in implementations()
    for spelling in (name.upper(), name.replace("-", "_"), *found.aliases):
        assert framework(spelling) is found
    features = found.features
    assert features.pipeline_parallel or features.schedules == ("1f1b",)
    assert features.partial_sharding is False or max(features.zero_stages) > 0
    assert not features.expert_tensor_parallel or features.expert_parallel


def test_aliases_are_unique():
    spellings = [spelling for name in frameworks() for spelling in (name, *framework(name).aliases)]
    assert len(spellings) == len(set(spellings))


def test_an_unknown_framework_is_answered_with_a_suggestion():
    with pytest.raises(InputError, match=r"unknown framework 'megatorn'; did you mean megatron"):
        framework("megatorn")


PLUGIN = package.Framework(name="mine", title="Mine", features=framework("picotron").features, implementation="torch-eager")


def test_a_plugin_that_only_plans_says_so():
    case = case_of("llama3-8b")
    with pytest.raises(InputError, match=r"Mine has no writer: its plugin only plans"):
        PLUGIN.write(case, layout_of(case))
    with pytest.raises(InputError, match=r"Mine has no reader: its plugin only plans"):
        PLUGIN.read([package.File(path="x.yaml", text="a: 1\n")])


def test_a_plugin_is_read(fresh):
    fresh(EntryPoint("mine", f"{__name__}:PLUGIN", GROUP))
    assert "mine" in frameworks()
    assert framework("mine").title == "Mine"


@pytest.mark.parametrize("name", CONTRACT)
def test_a_built_in_framework_is_complete(name):
    found = framework(name)
    assert found.version in found.releases
    for part in (found.writer, found.surface, found.decide, found.interpreter):
        assert part is not None
    assert found.limits and found.checks
    ids = [each.id for each in (*found.limits, *found.checks)]
    assert all(each.startswith(f"{name}.") or found.name in each for each in ids), ids
    for release in found.releases:
        there = framework(f"{name}@{release}")
        assert there.version == release and there.features.name == name


@pytest.mark.parametrize("value", ["no_such_module_anywhere:X", "meshwright.frameworks.picotron:RELEASES", "math:pi"])
def test_a_broken_plugin_is_logged_and_skipped(fresh, value):
    fresh(EntryPoint("broken", value, GROUP))
    with LOGGED as said:
        assert set(frameworks()) == set(CONTRACT)
    assert "skipped" in str(said.mock_calls)


def test_an_installed_package_does_not_register_itself_twice(fresh):
    fresh(*(EntryPoint(name, package._place(name), GROUP) for name in CONTRACT))
    with LOGGED as said:
        assert set(frameworks()) == set(CONTRACT)
    said.assert_not_called()

"""Verdicts of frameworks on drawn plans, as kept: the writer still says what was asked, check still refuses what was refused."""

from dataclasses import replace

import pytest
from benchmarks.asked import files_of, fingerprint, rules_broken, written_of
from benchmarks.verdicts import tables
from judged import judges

from meshwright.frameworks import framework, frameworks
from meshwright.testing.plans import FEATURES, offered

TABLES = {table.name: table for table in tables()}
FROM_SOURCE = {"bridge@0.3", "bridge@main", "chatlearn@b7af31a9", "chatlearn@fsdp", "megatron-deepspeed@4efb479d", "nanotron@0.4",
               "picotron@59714b1", "llama-factory-hf@main", "llama-factory-hf@fsdp2",
               "llama-factory-megatron@main",
               *(f"megatron@{release}" for release in framework("megatron").releases)}
REFUSED = {"bridge@0.3": 30, "bridge@main": 30}
"""Configurations that a framework refuses, at least; some parsers refuse next to nothing."""
EACH = 4
"""Plans, and refused configurations, that a framework beside the tests is asked again."""


@pytest.fixture(scope="module", params=sorted(TABLES))
def kept(request):
    """A table, with what is written for its rows now: files, case and layout."""
    table = TABLES[request.param]
    return table, [(row, *written_of(table.name, row)) for row in table.rows]


def test_every_framework_that_is_asked_from_a_checkout_has_its_table():
    assert set(TABLES) == FROM_SOURCE and {name.partition("@")[0] for name in TABLES} < set(frameworks())


def test_what_is_written_is_what_the_framework_was_asked(kept):
    table, rows = kept
    changed = [row for row, files, *_ in rows if fingerprint(files) != row.files]
    assert not changed, f"{len(changed)} launches say something else now: python -m benchmarks.verdicts --only {table.name}"


def test_plans_of_every_sort_are_taken_as_written(kept):
    """Of each feature that the framework offers, of each task, dense models and mixtures where it has experts."""
    table, rows = kept
    features = framework(table.name).features
    plans = [(row, case, layout) for row, _, case, layout in rows if row.asked == "plan"]
    assert len(plans) >= 60 and all(row.accepted and not row.why for row, *_ in plans)
    assert {row.task for row, *_ in plans} == set(features.tasks)
    assert {case.model.is_moe for _, case, _ in plans} >= {False, features.mixture_of_experts}
    missing = [name for name in offered(features) if not any(FEATURES[name](layout) for *_, layout in plans)]
    assert not missing


def test_check_refuses_what_the_framework_refuses(kept):
    table, rows = kept
    refused = [(row, files, case) for row, files, case, _ in rows if row.asked == "refused"]
    assert len(refused) >= REFUSED.get(table.name, 0) and not any(row.accepted for row, *_ in refused)
    assert all(set(row.check.split()) & rules_broken(table.name, files, case) for row, files, case in refused)


def test_the_framework_reads_commands_and_configurations_and_no_comments():
    for name, before, after in (("bridge@0.3", "train.train_iters=50", "train.train_iters=51"),
                                ("megatron@0.16", "--micro-batch-size 1", "--micro-batch-size 2"),
                                ("nanotron@0.4", "learning_rate: 0.0003", "learning_rate: 0.0004")):
        row = next(row for row in TABLES[name].plans if any(before in file.text for file in files_of(name, row)))
        files = files_of(name, row)
        spoken = [replace(file, text=file.text.replace("Written by Meshwright", "By hand")) for file in files]
        other = [replace(file, text=file.text.replace(before, after)) for file in files]
        assert fingerprint(spoken) == fingerprint(files) != fingerprint(other)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("judge", [judge for judge in judges() if judge.commit], ids=lambda judge: judge.framework)
def test_a_framework_beside_the_tests_says_what_is_kept(judge):
    if why := judge.absent():
        pytest.skip(why)
    name = judge.framework
    rows = (*TABLES[name].plans[:EACH], *TABLES[name].refused[:EACH])
    said = judge.verdicts([written_of(name, row) for row in rows])
    assert [each["accepted"] for each in said] == [row.accepted for row in rows]

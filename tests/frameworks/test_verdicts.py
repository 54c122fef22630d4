"""Verdicts of frameworks on drawn plans, as kept: the writer still says what was asked, check still refuses what was refused."""

import pytest
from benchmarks.verdicts import files_of, fingerprint, rules_broken, tables

TABLES = {table.name: table for table in tables()}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_written_is_what_the_framework_was_asked(name):
    changed = [row for row in TABLES[name].rows if fingerprint(files_of(name, row)) != row.files]
    assert not changed, f"{len(changed)} launches say something else now: python -m benchmarks.verdicts --only {name}"


@pytest.mark.parametrize("name", TABLES)
def test_plans_are_taken_as_written(name):
    plans = TABLES[name].plans
    assert len(plans) >= 60 and all(row.accepted and not row.why for row in plans)
    assert {row.task for row in plans} == {"pretrain", "sft", "lora"}
    assert {"layers=", "recompute=full", "recompute=selective", "zero2", "ep2"} <= {
        word for row in plans for word in ("layers=", "recompute=full", "recompute=selective", "zero2", "ep2") if word in row.layout
    }


@pytest.mark.parametrize("name", TABLES)
def test_check_refuses_what_the_framework_refuses(name):
    refused = TABLES[name].refused
    assert len(refused) >= 30 and not any(row.accepted for row in refused)
    assert all(set(row.check.split()) & rules_broken(name, row) for row in refused)


def test_the_framework_reads_commands_and_configurations_and_no_comments():
    name, row = "bridge@0.3", TABLES["bridge@0.3"].plans[0]
    files = files_of(name, row)
    spoken = [type(file)(path=file.path, text=file.text.replace("Written by Meshwright", "By hand"), executable=file.executable)
              for file in files if not file.path.endswith(".md")]
    other = [type(file)(path=file.path, text=file.text.replace("train.train_iters=50", "train.train_iters=51"),
                        executable=file.executable) for file in files]
    scripts = [file for file in spoken if file.executable]
    assert fingerprint(scripts) == fingerprint([file for file in files if file.executable])
    assert fingerprint(other) != fingerprint(files)

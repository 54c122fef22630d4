"""picotron: its JSON against its own checks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from megatron_cases import case_of, layout_of
from oracles_run import judge, needs

from meshwright.domain.layout import Full, Mixed
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.settings import Given
from meshwright.testing import any_plans, legal_plans, offered

PICOTRON = framework("picotron")


def case(model="llama3-8b", **more):
    return case_of(model, implementation_name="torch-eager", **more)


def checks_of(case):
    model = case.model
    return {"num_layers": model.num_layers, "hidden_size": model.hidden, "vocabulary": model.vocabulary}


def config(adapter, case, layout):
    return next(file.text for file in adapter.write(case, layout) if file.path == "config.json")


def read(document, **given):
    return PICOTRON.read([File(path="config.json", text=json.dumps(document, indent=4))], given=Given(**given))


def found(reading):
    return {finding.message.id for check in PICOTRON.checks for finding in check.findings(reading, None)}


@pytest.mark.slow
@needs("picotron")
def test_picotron_takes_what_is_written():
    plans = list(legal_plans("picotron", 200))
    for feature in offered(PICOTRON.features):
        plans += legal_plans("picotron", 20, feature=feature)
    cases = [{"files": {"c.json": config(PICOTRON, *plan)}, "world": plan[1].world, "checks": checks_of(plan[0])} for plan in plans]
    assert [verdict["why"] for verdict in judge("picotron", cases) if not verdict["accepted"]] == []


@pytest.mark.slow
@needs("picotron")
def test_what_picotron_takes_the_limits_take():
    bare = replace(PICOTRON, limits=())
    plans = [plan for plan in any_plans("picotron", 200) if not isinstance(plan[1].recompute, Mixed)]
    cases = [{"files": {"c.json": config(bare, *plan)}, "world": plan[1].world, "checks": checks_of(plan[0])} for plan in plans]
    accepted = [plan for plan, verdict in zip(plans, judge("picotron", cases), strict=True) if verdict["accepted"]]
    refused = [{message.id for message in PICOTRON.check(*plan)} - {"picotron.width"} for plan in accepted]
    assert len(accepted) > 50
    assert sum(map(bool, refused)) <= 0.05 * len(accepted), refused


# Facts of huggingface/picotron: template/base_config.json, and runs as create_config.py writes them.
REAL = [
    ({"tp_size": 1, "cp_size": 1, "pp_size": 1, "dp_size": 1, "pp_engine": "1f1b"}, {"seq_length": 1024,
     "micro_batch_size": 32, "gradient_accumulation_steps": 1},
     {"tensor_parallel": 1, "data_parallel": 1, "microbatch_sequences": 32}, 32),
    ({"tp_size": 4, "cp_size": 1, "pp_size": 4, "dp_size": 4, "pp_engine": "1f1b"}, {"seq_length": 4096,
     "micro_batch_size": 4, "gradient_accumulation_steps": 32},
     {"tensor_parallel": 4, "pipeline_parallel": 4, "data_parallel": 4, "num_microbatches": 32, "schedule": "1f1b"}, 512),
    ({"tp_size": 2, "cp_size": 2, "pp_size": 2, "dp_size": 1, "pp_engine": "afab"}, {"seq_length": 2048,
     "micro_batch_size": 1, "gradient_accumulation_steps": 8},
     {"tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2, "schedule": "gpipe"}, 8),
]


@pytest.mark.parametrize(("distributed", "training", "expected", "batch"), REAL)
def test_real_files_are_read(distributed, training, expected, batch):
    reading = read({"distributed": distributed, "training": training, "model": {"name": "x", "num_hidden_layers": 16}})
    assert reading.messages == ()
    assert {field: getattr(reading.layout, field) for field in expected} == expected
    assert (reading.said.global_batch_sequences, reading.said.sequence_tokens) == (batch, training["seq_length"])
    assert reading.said.figures["layers"] == 16


def test_the_world_must_be_the_product():
    reading = read({"distributed": REAL[1][0], "training": REAL[1][1]}, num_devices=32)
    assert reading.layout is None
    assert "world_size must be equal to tp_size * pp_size * dp_size * cp_size" in str(reading.messages[0])


def half_gradients(where):
    training = replace(where.training, precision=replace(where.training.precision, gradient_bytes=2.0))
    return replace(where, training=training)


BROKEN = {
    "picotron.model": (case("qwen2.5-7b"), {}),
    "picotron.precision": (case(precision_name="fp8-cs"), {}),
    "picotron.gradients": (half_gradients(case()), {}),
    "picotron.optimizer": (case(optimizer_name="sgd"), {}),
    "picotron.knobs": (case(), {"recompute": Full(), "zero": 0}),
    "picotron.layers": (case(), {"pipeline_parallel": 64, "zero": 0}),
    "picotron.sequence": (case(sequence=2049), {"context_parallel": 2, "zero": 0}),
    "picotron.heads": (case(devices=48), {"tensor_parallel": 3, "zero": 0}),
    "picotron.key-value-heads": (case(), {"tensor_parallel": 16, "zero": 0}),
    "picotron.width": (case(devices=48), {"tensor_parallel": 3, "zero": 0}),
    "picotron.vocabulary": (case("llama2-7b", devices=48), {"tensor_parallel": 3, "zero": 0}),
}


@pytest.mark.parametrize("limit", BROKEN)
def test_a_limit_fires(limit):
    where, knobs = BROKEN[limit]
    assert limit in {message.id for message in PICOTRON.check(where, layout_of(where, **knobs))}


def test_limits_are_silent_on_a_plain_layout():
    assert PICOTRON.check(case(), layout_of(case(), zero=0, tensor_parallel=8)) == ()


def test_every_limit_is_tested():
    assert {limit.id for limit in PICOTRON.limits} - set(BROKEN) <= {"picotron.task"} | {
        limit.id for limit in PICOTRON.limits if limit.path == "cluster"
    }


def whole():
    return json.loads(config(PICOTRON, case(), layout_of(case(), zero=0)))


WRONG = {
    "picotron.unread": ("model", "dtype", "bfloat16"),
    "picotron.fused-adam": ("model", "use_fused_adam", True),
    "picotron.missing": ("training", "seed", None),
    "picotron.flash-on-cpu": ("distributed", "use_cpu", True),
}


@pytest.mark.parametrize("check", WRONG)
def test_a_check_fires(check):
    document = whole()
    assert check not in found(read(document))
    section, key, value = WRONG[check]
    if value is None:
        del document[section][key]
    else:
        document[section][key] = value
    assert check in found(read(document))


def test_every_check_is_tested():
    assert {check.id for check in PICOTRON.checks} == set(WRONG)


def test_an_edit_is_one_line_of_diff():
    text = config(PICOTRON, case(), layout_of(case(), zero=0)).replace('"seed": 42,', '"seed":   42,')
    reading = PICOTRON.read([File(path="c.json", text=text)])
    other = replace(reading.layout, microbatch_sequences=2, num_microbatches=2)
    edited = edit(PICOTRON, reading, case(), other)
    assert len([line for line in edited.diff.splitlines() if line.startswith("+ ")]) == 2
    assert PICOTRON.read([File(path="c.json", text=edited.files[0].text)]).layout == other
    assert '"seed":   42,' in edited.files[0].text

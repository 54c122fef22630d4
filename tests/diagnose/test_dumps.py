"""Configurations that logs print over many lines: the layout and the model of the run, or neither."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import pytest
from tests.strategies import small_case

import meshwright as mw
from meshwright.domain.label import label, parse_layout
from meshwright.frameworks import framework

DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "fp16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": None,
        "n_positions": 1024, "vocab_size": 50257, "task_specific_params": {"text-generation": {"do_sample": True}}}
OVERRIDES = "INFO:__main__:Overriding config: n_embd=1024,n_head=16,n_layer=24,gradient_checkpointing=true,use_cache=False"
TITAN = "[titan] 2026-02-24 19:46:{second:02d},508 - root - INFO - "


def transformers_log(config=GPT2, deepspeed=DEEPSPEED, *, overrides=OVERRIDES, between="", arguments="fp16=True, seed=42") -> str:
    """A run of the Trainer with DeepSpeed on 16 ranks, as two ranks print it: what is printed twice counts once."""
    lines = [f"INFO:__main__:Training/evaluation parameters TrainingArguments(output_dir=/x/y, {arguments})"]
    for _ in range(2):
        lines += [f"[INFO|configuration_utils.py:553] 2021-05-25 >> Model config GPT2Config {json.dumps(config, indent=2)}"]
    lines += [overrides, "[2021-05-25 06:38:26,359] [INFO] [config.py:752:print]   world_size ................... 16"]
    lines += [f"[2021-05-25 06:38:26,360] [INFO] [config.py:754:print]   json = {json.dumps(deepspeed, indent=4)}", between]
    lines += ["***** Running training *****", "  Num examples = 1000", "  Instantaneous batch size per device = 4",
              "  Total train batch size (w. parallel, distributed & accumulation) = 128", "  Gradient Accumulation steps = 2",
              "  Total optimization steps = 3"]
    lines += [f" {33 * step}%|#   | {step}/3 [00:0{step}<00:01,  1.50s/it]" for step in (1, 2, 3)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def asked(tmp_path):
    def ask(text: str, **options):
        path = tmp_path / "run.log"
        path.write_text(text, encoding="utf-8")
        return mw.diagnose(mw.DiagnoseRequest(files=[str(path)], **options))

    return ask


def test_a_trainer_with_deepspeed_tells_layout_and_model(asked):
    """The configuration that was loaded is overridden before the model is made; recomputation stands in it."""
    run = asked(transformers_log(), device="v100-32g", sequence=1024).diagnosis.run
    assert (run.framework.name, run.layout.data_parallel, run.layout.parameter_shards) == ("deepspeed", 16, 16)
    assert (run.layout.microbatch_sequences, run.layout.num_microbatches, run.layout.offload) == (4, 2, ("optimizer",))
    assert "recompute=full" in label(run.layout)
    model = run.case.model
    assert (model.hidden, model.num_layers, model.attention.num_heads, model.vocabulary) == (1024, 24, 16, 50257)
    assert run.case.training.precision.name == "fp16"
    assert run.predicted is not None


def test_recomputation_of_newer_arguments_is_read(asked):
    text = transformers_log(overrides="", arguments="gradient_checkpointing=True, fp16=True")
    assert "recompute=full" in label(asked(text).diagnosis.run.layout)
    assert "recompute" not in label(asked(transformers_log(overrides="")).diagnosis.run.layout)


def test_two_models_in_one_log_are_none(asked):
    """A teacher and a student: nobody can tell which of them the steps are of."""
    other = json.dumps(GPT2 | {"n_layer": 6}, indent=2)
    text = transformers_log(between=f">> Model config GPT2Config {other}")
    found = asked(text, device="v100-32g", sequence=1024)
    assert found.diagnosis.run.case is None
    assert found.diagnosis.run.layout.parameter_shards == 16
    assert any("several of model_config" in note for note in found.diagnosis.notes)


@pytest.mark.parametrize("broken", ['json = {\n  "a": 1,\nanother rank speaks\n  "b": 2\n}', "json = {", 'json = {\n "a": [1, }\n}',
                                    "json = {\n" + '"a": {' * 400 + "\n}"])
def test_a_configuration_in_pieces_is_none(asked, broken):
    text = transformers_log().replace(f"json = {json.dumps(DEEPSPEED, indent=4)}", broken)
    assert asked(text).diagnosis.run.layout is None


def test_the_length_of_sequences_is_not_guessed(asked):
    found = asked(transformers_log(), device="v100-32g")
    assert found.diagnosis.run.case is None
    assert any("--sequence" in str(note) for note in found.notes)


@pytest.mark.parametrize("words", ["tp2 pp2 mb1 zero3", "tp1 mb2 zero3 recompute=full", "tp4 cp2 mb1 zero3"])
def test_torchtitan_tells_its_layout(asked, words):
    """What it writes as TOML it prints as JSON, every key that has a value or none."""
    case = small_case(devices=16, batch=32)
    titan = framework("torchtitan").at("0.2")
    layout = parse_layout(words, num_devices=16, global_batch_sequences=32, model=case.model)
    layout = titan.normal(case, replace(layout, sequence_parallel=layout.tensor_parallel > 1))
    (toml, *_) = [each for each in titan.write(case, layout) if each.path.endswith(".toml")]
    config = tomllib.loads(toml.text)
    config["model"]["hf_assets"], config["experimental"] = None, {}
    lines = [TITAN.format(second=1) + f"Running with configs: {json.dumps(config, indent=2)}"]
    figures = "loss:  7.0  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%"
    lines += [TITAN.format(second=step) + f"step:  {step}  {figures}" for step in (2, 3, 4)]
    found = asked("\n".join(lines) + "\n", devices=16, device="h100-sxm", model="llama3-8b", sequence=2048).diagnosis.run
    assert found.layout == layout
    assert found.case.batch.global_batch_sequences == 32

"""Distillation under Megatron-Bridge: a teacher's fields are read, and are never those of the model."""

import pytest
from test_bridge_adapter import document, found, read, recipe, words

from meshwright.frameworks import File

STUDENT = recipe(2, 1, 1, batch=8) | {"model.num_layers": 16}
TEACHER = {f"model.teacher.{name}": value for name, value in {
    "num_layers": 28, "hidden_size": 3072, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "seq_length": 4096,
}.items()}
KNOWLEDGE = {"model.kd_config.kd_loss_scale": 2.0, "model.kd_config.skip_lm_loss": True}


def python(values, tail=""):
    """As examples/distillation of Megatron-Bridge 067f987 does it: two recipes, of which one becomes the teacher of the other."""
    lines = []
    for key, value in values.items():
        part, _, name = key.removeprefix("model.").partition(".")
        lines.append({"teacher": f"teacher_cfg.model.{name} = {value!r}", "kd_config": f"kd_config.{name} = {value!r}"}.get(
            part if key.startswith("model.") else "", f"cfg.{key} = {value!r}"))
    return File(path="distill.py", text="\n    ".join((
        "def main():", "cfg = llama32_1b_pretrain_config()", "teacher_cfg = llama32_3b_pretrain_config()",
        "kd_config = ModelOptDistillConfig()", *lines,
        "cfg.model = convert_to_distillation_provider(cfg.model, teacher_cfg.model, kd_config)",
        "cfg = process_config_with_overrides(config=cfg, config_filepath=args.config_file)", f"distill(config=cfg){tail}")))


def script(values):
    """The launch alone, which says what its program trains."""
    said = words(values).text.replace("scripts/training/run_recipe.py --recipe llama3_70b_pretrain_config", "distill.py")
    return File(path="run.sh", text=f"export MESHWRIGHT_TASK=pretrain\n{said}")


def yaml_of(values):
    """YAML, whose sections nest more deeply than those of the other tests."""
    import yaml

    nested = {}
    for key, value in values.items():
        *above, name = key.split(".")
        place = nested
        for section in above:
            place = place.setdefault(section, {})
        place[name] = value
    return File(path="override.yaml", text=yaml.safe_dump(nested))


@pytest.mark.parametrize("form", [python, script, yaml_of])
def test_the_layout_and_the_shapes_are_those_of_the_student(form):
    alone, taught = (read(form(STUDENT | more), devices=8) for more in ({}, TEACHER | KNOWLEDGE))
    assert taught.layout == alone.layout and taught.layout.tensor_parallel == 2
    assert dict(taught.said.figures) == dict(alone.said.figures) == {"layers": 16}
    assert {key for key in taught.source.settings if "teacher" in key or "kd_config" in key} == {*TEACHER, *KNOWLEDGE}
    assert "bridge.teacher" in found(taught) and not {"bridge.teacher-differs", "bridge.field"} & found(taught)


@pytest.mark.parametrize("form", [python, script, yaml_of])
@pytest.mark.parametrize("name", ["tensor_model_parallel_size", "seq_length"])
def test_what_both_must_share_and_do_not_is_an_error(form, name):
    differing = TEACHER | {f"model.teacher.{name}": 4}
    assert "bridge.teacher-differs" in found(read(form(STUDENT | differing), devices=8))


def test_a_recipe_of_run_recipe_has_no_teacher():
    assert "bridge.field" in found(read(words(STUDENT | TEACHER), devices=8))


def test_an_edit_changes_what_both_share():
    source = read(yaml_of(STUDENT | TEACHER), devices=8).source
    text = source.documents[0].changed({"model.tensor_model_parallel_size": 4, "model.num_layers": 18})
    after = {key: setting.value for key, setting in read(File(path="override.yaml", text=text), devices=8).source.settings.items()}
    assert after == STUDENT | TEACHER | {
        "model.tensor_model_parallel_size": 4, "model.teacher.tensor_model_parallel_size": 4, "model.num_layers": 18,
    }


def test_files_without_a_teacher_say_nothing_of_one():
    assert not {each for each in found(read(document(STUDENT), devices=8)) if "teacher" in each}

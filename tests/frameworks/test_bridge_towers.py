"""Vision towers through Megatron-Bridge: the whole class of the hub, frozen or trained, in front of made-up images."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from bridge_cases import absent, ask, case_of, release
from hypothesis import given
from hypothesis import strategies as st
from test_bridge_adapter import BRIDGE, layout_of, read, refused

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.domain.launching import launched
from meshwright.domain.tower import Tower
from meshwright.frameworks.bridge.images import images_of
from meshwright.frameworks.launching import said_settings
from meshwright.frameworks.parts import able

WRAPPERS = {"qwen2.5-vl-7b": "qwen2_5_vl", "gemma3-4b": "gemma3"}


def towered(name, *, trained, sequence=4096, **options):
    case = make_case(name, cluster_for("h100-sxm", num_devices=16), global_batch_sequences=32, sequence_tokens=sequence,
                     framework="bridge@main", calibration="none", **options)
    return replace(case, model=replace(case.model, tower=replace(case.model.vision, trained=trained)))


def written(name, *, trained):
    case = towered(name, trained=trained)
    layout = layout_of(case, tensor_parallel=2, pipeline_parallel=2, data_parallel=4, num_microbatches=8)
    assert not refused(case, layout, "main") & {"model", "tower"}
    return case, layout, BRIDGE.at("main").write(case, layout)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(("name", "images"), [("qwen2.5-vl-7b", 2), ("gemma3-4b", 8)])
def test_the_class_that_has_a_tower_is_built_in_front_of_images(name, images, trained):
    case, layout, files = written(name, trained=trained)
    program = next(file.text for file in files if file.path == "train.py")
    compile(program, "train.py", "exec")
    assert "get_text_config" not in program
    assert f"shape.architectures = ['{case.model.tower.architecture}']" in program
    for part in ("model", "projection"):
        assert f"config.model.freeze_vision_{part} = {not trained}" in program
    assert f"num_images={images}, image_size=(896, 896)" in program
    assert "from megatron.bridge.training.vlm_step import forward_step" in program
    reading = read(*[file for file in files if not file.path.endswith(".md")], devices=16, model=name)
    assert reading.layout == BRIDGE.normal(case, layout)


@examples(20)
@given(name=st.sampled_from([*WRAPPERS]), trained=st.booleans(), share=st.floats(0.1, 1.0),
       sequence=st.sampled_from([2048, 4096, 8192]))
def test_the_tower_and_its_images_are_read_back(name, trained, share, sequence):
    case = towered(name, trained=trained, sequence=sequence)
    case = replace(case, model=replace(case.model, tower=replace(case.model.tower, image_ratio=share)))
    layout = layout_of(case, tensor_parallel=2, pipeline_parallel=2, data_parallel=4, num_microbatches=8)
    files = [file for file in BRIDGE.at("main").write(case, layout) if not file.path.endswith(".md")]
    said = said_settings(read(*files, devices=16, model=name).said.launch)
    assert said["vision"] == ("trained" if trained else "frozen")
    tower, tokens = case.model.tower, share * sequence
    count, pixels = images_of(tower, sequence)
    assert int(said["image_tokens"]) == count * (pixels // 14) ** 2 // tower.merged
    assert abs(int(said["image_tokens"]) - tokens) <= 0.15 * tokens + tower.image_patches / tower.merged / 2
    plain = replace(case, model=replace(case.model, tower=None))
    assert launched(plain, {"vision": said["vision"]}).model.tower.trained == trained


@pytest.mark.parametrize("size", ["(0, 0)", "(-14, 28)", "(-28, -28)", "(13, 896)", "(True, 896)", "(896,)", "'896'"])
def test_images_without_a_whole_patch_are_no_number_of_tokens(size):
    case = towered("qwen2.5-vl-7b", trained=True)
    files = [file for file in BRIDGE.at("main").write(case, layout_of(case)) if not file.path.endswith(".md")]
    spoilt = [replace(file, text=re.sub(r"image_size=\([^)]*\)", f"image_size={size}", file.text)) for file in files]
    assert [file.text for file in spoilt] != [file.text for file in files]
    said = said_settings(read(*spoilt, devices=16, model="qwen2.5-vl-7b").said.launch)
    assert said["vision"] == "trained"
    assert "image_tokens" not in said


def test_files_without_a_tower_say_nothing_of_one():
    case = towered("gemma3-4b", trained=True)
    alone = replace(case, model=replace(case.model, tower=None))
    files = [file for file in BRIDGE.at("main").write(alone, layout_of(alone)) if not file.path.endswith(".md")]
    assert "vision" not in said_settings(read(*files, devices=16, model="gemma3-4b").said.launch)


def test_the_model_alone_is_trained_without_images():
    case = towered("gemma3-4b", trained=True)
    alone = replace(case, model=replace(case.model, tower=None))
    program = next(file.text for file in BRIDGE.at("main").write(alone, layout_of(alone)) if file.path == "train.py")
    assert "get_text_config()" in program
    assert "Mock" not in program and "freeze_vision" not in program and "gpt_step" in program


@pytest.mark.oracle
@pytest.mark.skipif(bool(absent()), reason=absent() or "present")
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", WRAPPERS)
def test_bridge_takes_what_is_written(name, trained):
    if release() != "main":
        pytest.skip("towers are written for main alone")
    case, layout, files = written(name, trained=trained)
    verdict, = ask([case_of(files, case.model, layout.world) | {"checks": {"model_type": WRAPPERS[name]}}])
    assert verdict["accepted"], verdict
    model, data = verdict["config"]["model"], verdict["config"]["dataset"]
    assert (model["freeze_vision_model"], model["freeze_vision_projection"], model["freeze_language_model"]) == (
        not trained, not trained, False)
    assert (model["num_layers"], data["seq_length"]) == (case.model.num_layers, 4096)


def test_towers_are_trained_on_made_up_images_and_whole_sequences_alone():
    wide = towered("qwen2.5-vl-7b", trained=True)
    assert "tower" in refused(wide, layout_of(wide, context_parallel=2), "main")
    tuned = towered("qwen2.5-vl-7b", trained=True, task="sft")
    assert "tower" in refused(tuned, layout_of(tuned), "main")
    chosen = replace(wide, implementation=replace(wide.implementation, attention="flash"))
    assert "tower" in refused(chosen, layout_of(chosen), "main")
    assert "tower" not in refused(wide, layout_of(wide), "main")


def test_which_towers_bridge_is_said_to_train():
    def with_tower(name):
        model = load_model(name)
        return able(replace(model, tower=model.vision))

    assert "bridge@main" in with_tower("qwen2.5-vl-7b")
    assert not any(each.startswith("bridge") for each in with_tower("qwen3-vl-8b"))  # its class divides the tower over TP


@examples(60)
@given(st.integers(64, 65536), st.floats(0.05, 0.95), st.sampled_from([(4, 4096), (16, 4096), (4, 1024)]))
def test_images_fill_their_share_of_a_sequence(tokens, ratio, sizes):
    merged, patches = sizes
    tower = Tower(name="t", layers=1, hidden=64, parameters=1, merged=merged, image_patches=patches, image_ratio=ratio)
    count, pixels = images_of(tower, tokens)
    edge, step = pixels // 14, round(merged**0.5)
    assert pixels % (14 * step) == 0
    assert edge**2 <= patches
    made, wanted, ring = count * edge**2 / merged, ratio * tokens, count * (2 * edge * step + step**2) / merged
    assert wanted - patches / merged / 2 - ring <= made <= max(wanted, 1.0) + 1e-6

"""Towers that a user describes, in YAML or by a wrapper's file: read as documented, refused in one line where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from rich.console import Console

import meshwright as mw
from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.domain.launching import launched, seeing
from meshwright.errors import InputError
from meshwright.readers.hf_config import model_from_config
from meshwright.report.headline import case_header

if TYPE_CHECKING:
    from pathlib import Path

TOWER = {"name": "my tower", "layers": 24, "hidden": 1024, "parameters": 5_500_000_000, "trained": True}
CASE: dict[str, Any] = {"device": "h100-sxm", "nodes": 1, "global_batch": 64, "sequence": 4096, "layout": "tp1 zero1"}
TEXT = {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 2, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064}
QWEN = {"depth": 4, "embed_dim": 1280, "num_heads": 16}
QWEN25 = {"depth": 4, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
LLAMA4 = {"num_hidden_layers": 2, "hidden_size": 1408, "intermediate_size": 5632, "num_attention_heads": 16, "image_size": 336}


def own(folder: Path, **tower: object) -> str:
    """A file with a model that has a tower of its own."""
    block = {"like": "llama3-8b", "source": "mine", "tower": TOWER | tower}
    file = folder / "towered.yaml"
    file.write_text(yaml.safe_dump({"sources": {"mine": "my own"}, "models": {"towered": block}}))
    return str(file)


def wrapped(kind: str, vision: dict[str, object]) -> dict[str, object]:
    return {"model_type": kind, "architectures": ["XForConditionalGeneration"], "text_config": TEXT, "vision_config": vision}


def test_a_tower_is_read_as_the_page_describes_it(tmp_path: Path) -> None:
    tower = load_model(own(tmp_path)).tower
    assert tower is not None
    assert (tower.layers, tower.parameters, tower.whole_layers) == (24, TOWER["parameters"], 0)


@pytest.mark.parametrize(("wrong", "why"), [
    ({"image_ratio": 1.5}, "image_ratio: 1.5 is not within"), ({"image_ratio": 0.0}, "image_ratio: 0.0 is not within"),
    ({"whole_layers": 25}, "whole_layers: 25 are more than its 24 layers"),
    ({"heads": 3}, "heads: 3 does not divide"), ({"parameters": 10**17}, "parameters"), ({"layers": 0}, "layers: 0 is not within"),
])
def test_a_tower_that_contradicts_itself_is_refused_in_one_line(tmp_path: Path, wrong: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        load_model(own(tmp_path, **wrong))
    assert len(refused.value.messages) == 1


@pytest.mark.parametrize("vision", ["none", "frozen", "trained"])
def test_a_tower_of_its_own_is_no_setting_of_a_launch(tmp_path: Path, vision: str) -> None:
    with pytest.raises(InputError, match="always counted"):
        seeing(load_model(own(tmp_path)), vision, 0, 4096)


@pytest.mark.parametrize("launch", [{}, {"launch": "graphs=none"}])
def test_adapters_and_a_tower_that_is_trained_are_refused_whatever_the_launch(tmp_path: Path, launch: dict[str, str]) -> None:
    with pytest.raises(InputError, match="says trained: true of its own"):
        mw.estimate(mw.EstimateRequest(model=own(tmp_path), task="lora", **launch, **CASE))
    mw.estimate(mw.EstimateRequest(model=own(tmp_path, trained=False), task="lora", **launch, **CASE))


@pytest.mark.parametrize(("kind", "vision", "why"), [
    ("qwen2_vl", QWEN | {"spatial_merge_size": 10**9}, "limit"), ("qwen2_vl", QWEN | {"patch_size": [10**9, 10**9]}, "limit"),
    ("llama4", LLAMA4 | {"pixel_shuffle_ratio": 1e-200}, "1e-200 leaves no token of 576 patches"),
    ("llama4", LLAMA4 | {"pixel_shuffle_ratio": 0.01}, "leaves no token"),
])
def test_a_wrapper_whose_tower_cannot_be_is_refused_in_one_line(kind: str, vision: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        model_from_config(wrapped(kind, vision), where="x", name="x")
    assert len(refused.value.messages) == 1


@pytest.mark.parametrize("listed", [[1, 3], [3, 1, 1, 3, 3, 3], [1, 3, 99]])
def test_layers_that_look_at_the_whole_image_are_counted_once(listed: list[int]) -> None:
    vision = model_from_config(wrapped("qwen2_5_vl", QWEN25 | {"fullatt_block_indexes": listed}), where="x", name="x").vision
    assert vision is not None
    assert vision.whole_layers == 2


@pytest.mark.parametrize(("tokens", "said"), [
    (0, "2,048 of 4,096 tokens of a sequence are images (assumed: half; --launch image_tokens=N), 4,096 patches each"),
    (100, "100 of 4,096 tokens of a sequence are images, 400 patches each"),
])
def test_the_head_says_what_is_assumed_and_how_large_images_are(tokens: int, said: str) -> None:
    case = make_case("qwen2.5-vl-7b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=8, sequence_tokens=4096)
    console = Console(width=200)
    with console.capture() as found:
        for block in case_header(launched(case, {"vision": "frozen", "image_tokens": str(tokens)})):
            console.print(block)
    assert said in " ".join(found.get().split())

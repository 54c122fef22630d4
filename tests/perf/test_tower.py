"""What a vision tower costs, held to counts of transformers' own towers and to laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.case import Case
from meshwright.domain.launching import launched, settings_of
from meshwright.domain.layout import Full, Layout
from meshwright.errors import InputError
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.many import evaluate_many
from meshwright.estimate.several import evaluations
from meshwright.estimate.single import estimate
from meshwright.perf.flops import sequence_flops, training_flops
from meshwright.perf.parameters import total_parameters
from meshwright.perf.tower import tower_costs, tower_flops
from meshwright.readers.fields import Fields
from meshwright.readers.towers import towers

TEXT = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 64, "vocab_size": 64}
VISION: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_vl": ("Qwen3VL", {"depth": 3, "hidden_size": 256, "intermediate_size": 640, "num_heads": 4, "out_hidden_size": 64,
                             "deepstack_visual_indexes": [1], "num_position_embeddings": 256, "patch_size": 4}),
    "qwen2_5_vl": ("Qwen2_5_VL", {"depth": 4, "hidden_size": 256, "intermediate_size": 640, "num_heads": 4, "out_hidden_size": 64,
                                  "patch_size": 4, "window_size": 32, "fullatt_block_indexes": [1, 3]}),
}
PATCHES, MERGED = 256, 4


@pytest.mark.oracle
@pytest.mark.parametrize("kind", VISION)
@pytest.mark.filterwarnings("ignore")
def test_flops_and_kept_bytes_are_those_of_the_class(kind: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    name, vision = VISION[kind]
    towers_of = []
    for attention in ("eager", "sdpa"):  # the counter knows no fused kernel of the CPU
        config = getattr(transformers, f"{name}Config")(text_config=TEXT, vision_config=vision)
        config._attn_implementation = attention
        towers_of.append(getattr(transformers, f"{name}ForConditionalGeneration")(config).model.visual.to(torch.bfloat16))
    plain, tower = towers_of
    pixels = torch.randn(PATCHES, 3 * 2 * 4 * 4).bfloat16()
    weights = {each.untyped_storage().data_ptr() for each in tower.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with FlopCounterMode(display=False) as counted:
        plain(pixels, torch.tensor([[1, 16, 16]]))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        tower(pixels, torch.tensor([[1, 16, 16]]))
    wrapper = Fields({"model_type": kind, "vision_config": vision}, "x")
    ours = replace(towers[kind](wrapper, wrapper.inner("vision_config"), 64), image_patches=PATCHES, image_ratio=1.0, trained=True)
    assert tower_flops(ours, PATCHES // MERGED) == pytest.approx(counted.get_total_flops(), rel=0.01)
    case = make_case("llama3-8b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=8, calibration="none",
                     sequence_tokens=PATCHES // MERGED, framework="accelerate")
    saved = float(tower_costs(ours, case, 1, np.array(8.0)).saved_bytes)
    assert saved == pytest.approx(sum(kept.values()), rel=0.08)


def case_of(**more: Any) -> Case:
    return make_case("qwen3-vl-8b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=16, sequence_tokens=4096,
                     framework="megatron", calibration="none", **more)


LAYOUT = Layout(pipeline_parallel=2, tensor_parallel=2, data_parallel=2, num_microbatches=8, optimizer_shards=2)


def test_adapters_stand_in_the_model_not_in_its_tower() -> None:
    """A frozen tower costs a run of adapters what it costs one of all weights."""
    full, adapters = (
        launched(
            make_case(
                "qwen2.5-vl-7b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=8, sequence_tokens=8192, task=task
            ),
            {"vision": "frozen", "image_tokens": "2048"},
        ) for task in ("sft", "lora")
    )
    towers_of = [tower_costs(each.model.tower, each, np.array(1.0), np.array(8.0)) for each in (full, adapters)]  # type: ignore[arg-type]
    assert towers_of[0].forward == towers_of[1].forward


def test_a_frozen_tower_is_weights_and_a_forward_on_the_first_stage() -> None:
    alone = case_of()
    frozen, trained = (launched(alone, {"vision": each, "image_tokens": "2048"}) for each in ("frozen", "trained"))
    tower = alone.model.vision
    assert tower is not None
    none, still, learns = (estimate(each, LAYOUT) for each in (alone, frozen, trained))
    own = [(a.memory.parameters, a.memory.optimizer) for a in (none.stages[0], still.stages[0], learns.stages[0])]
    assert own[1][0] - own[0][0] == pytest.approx(2.0 * tower.parameters)
    assert own[1][1] == own[0][1]
    assert own[2][0] - own[0][0] == pytest.approx(2.0 * tower.parameters)
    assert own[2][1] - own[0][1] == pytest.approx(12.0 * tower.parameters / 2)
    assert still.stages[1].memory == none.stages[1].memory
    assert still.stages[0].forward_s > none.stages[0].forward_s
    assert still.stages[0].backward_s == none.stages[0].backward_s
    assert learns.stages[0].backward_s > still.stages[0].backward_s
    assert learns.stages[0].memory.activations > still.stages[0].memory.activations == none.stages[0].memory.activations
    assert total_parameters(frozen.model) == total_parameters(trained.model) == total_parameters(alone.model) + tower.parameters


def test_images_cost_three_passes_where_the_tower_learns() -> None:
    alone = case_of()
    work = []
    for vision in ("none", "frozen", "trained"):
        model = launched(alone, {"vision": vision}).model
        work.append(training_flops(sequence_flops(model, 4096, convention="causal")))
    assert work[2] - work[0] == pytest.approx(3.0 * (work[1] - work[0]))
    assert work[1] > work[0]


def test_more_images_take_longer_and_settings_go_back() -> None:
    alone = case_of()
    few, many = (launched(alone, {"vision": "trained", "image_tokens": each}) for each in ("1024", "4096"))
    assert estimate(few, LAYOUT).step_s < estimate(many, LAYOUT).step_s
    assert {name: settings_of(many)[name] for name in ("vision", "image_tokens")} == {"vision": "trained", "image_tokens": "4096"}
    assert launched(many, settings_of(many)).model == many.model
    assert launched(many, {"vision": "none"}).model == alone.model


@pytest.mark.parametrize(("model", "settings", "words"), [
    ("llama3-8b", {"vision": "frozen"}, "llama3-8b has no vision tower that is described here"),
    ("qwen3-vl-8b", {"vision": "frozen", "image_tokens": "5000"}, "image_tokens=5000 is more than a sequence has: 4096"),
])
def test_what_a_tower_cannot_be_is_said(model: str, settings: dict[str, str], words: str) -> None:
    case = replace(case_of(), model=make_case(
        model, cluster_for("h100-sxm", num_devices=8), global_batch_sequences=8, sequence_tokens=4096).model)
    with pytest.raises(InputError, match=words):
        launched(case, settings)


LAYOUTS = [
    LAYOUT, replace(LAYOUT, virtual_stages=2, schedule="interleaved"), replace(LAYOUT, recompute=Full()),
    replace(LAYOUT, stage_layers=((10, 8), (10, 8)), virtual_stages=2, schedule="interleaved"),
    Layout(data_parallel=8, num_microbatches=2, optimizer_shards=8, gradient_shards=8, parameter_shards=8),
]


@pytest.mark.parametrize("vision", ["frozen", "trained"])
def test_columns_and_single_layouts_agree(vision: str) -> None:
    case = launched(case_of(), {"vision": vision})
    singles = [evaluate(case, layout) for layout in LAYOUTS]
    step_s, reserved = evaluate_many(case, LAYOUTS)
    each = [(float(one.time.step_s), float(one.memory.reserved_bytes.max())) for one in singles]
    assert list(zip(step_s, reserved, strict=True)) == [pytest.approx(one, rel=1e-12) for one in each]
    together = [(float(one.time.step_s), float(one.memory.reserved_bytes.max())) for one in evaluations(case, LAYOUTS)]
    assert together == [pytest.approx(one, rel=1e-12) for one in each]

"""What NVIDIA's rows say beside their columns."""

from dataclasses import replace

import pytest

from meshwright.catalog import load_model
from meshwright.evidence.rows.attempts import corpus
from meshwright.evidence.rows.row_model import told_by_name
from meshwright.evidence.rows.row_placement import layers_of
from meshwright.evidence.rows.run import run


@pytest.fixture(scope="module")
def rows():
    return {row.id: row for row in corpus()}


def test_a_layout_string_places_layers_by_chunk_and_stage():
    assert layers_of("Et*4|(t*4|)*14tmL", 2, 8) == ((4, 4),) * 7 + ((4, 1),)
    assert layers_of("Et*4|(tttt|)*14tmL", 8, 2) == ((4,) * 8, (4,) * 7 + (1,))
    assert layers_of("Et|(tt|)*30mL", 8, 4) == ((1, *(2,) * 7), (2,) * 8, (2,) * 8, (*(2,) * 7, 0))
    assert layers_of("Et*4|tL", 4, 1) is None


@pytest.mark.parametrize("layout", ["Et*999999999L", "E((t*999|)*999|)*999L", "E" + "t*9" * 40_000, "E" + "(t*1" * 500])
def test_a_layout_string_of_any_size_places_nothing_and_costs_nothing(layout):
    assert layers_of(layout, 2, 2) is None


def test_a_named_recipe_is_what_it_says(rows):
    graphed, partial, plain = run(rows["nv0048"]), run(rows["nv0144"]), run(rows["nv0258"])
    assert graphed.case.implementation.name == "megatron-te-graphed"
    assert graphed.case.implementation.cuda_graphs
    assert graphed.layout.overlap.expert
    assert partial.case.implementation.name == "megatron-te-deepep"
    assert partial.case.implementation.expert_host_sync
    assert not partial.layout.overlap.expert
    assert plain.case.implementation.name == "megatron-te", "dispatcher=None is the all-to-all one"
    assert {each.case.training.balanced_routing for each in (graphed, partial, plain)} == {True}
    assert {each.case.training.precision.gradient_bytes for each in (graphed, partial, plain)} == {2.0}


def test_stages_hold_what_the_recipe_of_deepseek_puts_there(rows):
    """Megatron-Bridge set_deepseek_v3_pipeline_model_parallel_layout; NeMo pretrain_deepseek_v3.py, 64 / PP - 1 and 64 / PP - 2."""
    names = ("nv0136", "nv0135", "nv0043", "nv0019", "nv0290", "nv0704", "nv0702")
    placed = {name: run(rows[name]).layout.stage_layers for name in names}
    assert placed["nv0136"] == ((4,) * 15 + (1,),)
    assert placed["nv0135"] == ((4,) * 4,) * 3 + ((4, 4, 4, 1),)
    assert placed["nv0043"] == ((8,) * 7 + (5,),)
    assert placed["nv0019"] == ((4, 4),) * 7 + ((4, 1),), "a layout string of the row decides"
    assert placed["nv0290"] == layers_of("Et|(tt|)*30mL", 8, 4)
    assert placed["nv0704"] == ((15, 16, 16, 14),)
    assert placed["nv0702"] == ((3, *(4,) * 14, 2),)


def test_attention_fell_back_on_blackwell_before_cudnn_had_a_backward_of_its_widths(rows):
    assert run(rows["nv0704"]).layout.attention == "math"
    assert run(rows["nv0702"]).layout.attention is None, "Hopper has one since cuDNN 9.5"
    assert run(rows["nv0247"]).layout.attention is None, "a later release"


def test_dropped_tokens_need_no_counts_and_no_flex_dispatcher(rows):
    said = rows["nv0282"].said
    assert said.balanced
    assert not said.dropless
    assert not said.flex
    assert not run(rows["nv0282"]).case.implementation.expert_host_sync


def test_multi_token_prediction_is_counted_where_the_flops_count_it(rows):
    for row in rows.values():
        if row.model == "deepseek-v3" and row.id.startswith("nv") and not row.flag and row.id != "nv0291":
            per_token = 1e12 * row.measured.tflops_per_device / row.measured.tokens_per_s_per_device
            assert row.said.mtp_layers == (per_token > 255e9), row.id


def test_windows_come_from_the_catalogue_where_every_shape_agrees(rows):
    model = run(rows["nv0092"]).case.model
    assert [kind.attention.window_tokens for kind in model.kinds] == [128, None]
    assert told_by_name(replace(model, hidden=4096)) is None
    assert told_by_name(replace(model, vocabulary=32_000)) == replace(model, vocabulary=32_000)
    assert told_by_name(load_model("llama3-8b")) is None


def test_norms_of_queries_and_keys_come_from_the_catalogue(rows):
    model = run(rows["trl-0001"]).case.model
    assert {kind.attention.query_key_norm for kind in model.kinds} == {"head"}
    assert told_by_name(replace(model, hidden=4096)) is None


def test_fine_tuning_is_packed_and_adapts_queries_keys_and_values(rows):
    lora, tuned = run(rows["nv0309"]), run(rows["nv0325"])
    assert lora.case.training.lora.targets == ("query", "key", "value")
    assert tuned.case.batch.mean_square_document_tokens == 210 * 4096
    assert tuned.layout.virtual_stages == 10, "a blank of a fine-tuning recipe is one layer a chunk"


def test_fully_sharded_rows_of_jax_shard_over_what_they_need(rows):
    assert [run(rows[name]).layout.parameter_shards for name in ("nv0630", "nv0653", "nv0640")] == [64, 128, 256]


def test_what_a_row_says_of_expert_overlap_holds_over_what_its_release_does(rows):
    words = {row.id: row.word("extra_settings") for row in rows.values()}
    said = {id: "a2a_overlap=True" in each for id, each in words.items() if "a2a_overlap=" in each}
    assert len(set(said.values())) == 2
    assert {id: rows[id].said.expert_overlap for id in said} == said


def test_a_mixture_whose_columns_are_blank_is_read_as_one(rows):
    named = [row for row in rows.values() if row.model.startswith("nemotron-3")]
    blank = [row for row in named if not row.word("n_experts") and row.sequence_tokens]
    assert len(blank) > 10
    for row in blank:
        assert row.said.dropless, row.id
        assert row.said.flex, row.id
        assert row.said.balanced == ("natural routing" not in row.cell("notes")), row.id
        assert run(row).case.implementation.name != "megatron-te", row.id


def test_nemotron_on_racks_replays_parts_of_a_layer_and_never_the_step(rows):
    racks = [row for row in rows.values() if row.model.startswith("nemotron-3") and row.device in ("gb200", "gb300")]
    assert {row.said.graphs for row in racks} == {False}
    assert {row.said.expert_overlap for row in racks} == {False}
    assert run(rows["nv0011"]).case.launch.graphs == "partial"
    assert run(rows["vcard-0054"]).case.launch.graphs is None, "the run says that it has none"
    fused, plain = run(rows["vcard-0038"]).case.implementation, run(rows["nv0011"]).case.implementation
    assert (fused.expert_fusion, fused.cuda_graphs, plain.expert_fusion) == (True, False, False)

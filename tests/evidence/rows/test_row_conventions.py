"""What a row of each source means: the reader against the documented conventions, over the whole shipped corpus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.evidence.runs_csv import TINY

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.estimate.evaluate import evaluate
from meshwright.evidence.rows.attempts import corpus
from meshwright.evidence.rows.conventions import conventions, rules_of
from meshwright.evidence.rows.reading import Refused, read_row
from meshwright.evidence.rows.refused import ImpossibleError, UnreadableError
from meshwright.evidence.rows.row import row_of
from meshwright.evidence.rows.run import Run, run
from meshwright.evidence.rows.table import shipped_table

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def runs_and_refused() -> tuple[dict[str, Run], dict[str, str]]:
    """By id: what each row of the shipped corpus is, or why it cannot be read."""
    runs, refused = {}, {}
    for row in shipped_table().rows:
        try:
            runs[row.id] = run(row)
        except (UnreadableError, ImpossibleError) as error:
            refused[row.id] = str(error)
    return runs, refused


def the_run(id_: str) -> Run:
    """What a row of the shipped corpus is."""
    return runs_and_refused()[0][id_]


NARAYANAN = {
    "gpt-1.7b": 16, "gpt-3.6b": 16, "gpt-7.5b": 16, "gpt-18.4b": 8, "gpt-39.1b": 4, "gpt-76.1b": 2, "gpt-145.6b": 2,
    "gpt-310.1b": 1, "gpt-529.6b": 1, "gpt-1008.0b": 1,
}
"""Micro-batches of NVIDIA/Megatron-LM examples/sc21/run_table_1.sh."""


def _ascend(each: Run) -> bool:
    return each.row.framework.startswith(("MindSpeed", "ModelLink"))


def _titan(each: Run) -> bool:
    return each.row.framework == "torchtitan"


def _jax(each: Run) -> bool:
    return each.row.framework in ("maxtext", "paxml")


def _mindspore(each: Run) -> bool:
    return each.row.framework.startswith("MindSpore")


def _blank_chunks(each: Run) -> bool:
    return not (each.row.virtual_stages or each.row.said.layer_per_chunk or each.row.said.virtual_stages)


def _old_nemo(each: Run) -> bool:
    return each.row.framework == "nemo" and each.row.framework_version[:5] < "25.04"


@dataclass(frozen=True)
class Convention:
    """A statement that holds for every run that it concerns, and how many runs the shipped corpus has of them at least."""

    name: str
    concerns: Callable[[Run], bool]
    holds: Callable[[Run], bool]
    at_least: int


CONVENTIONS = (
    Convention("degrees multiply to the devices", lambda _: True, lambda each: each.layout.world == each.row.num_devices, 2500),
    Convention(
        "replicas, micro-batch and accumulation multiply to the batch", lambda _: True,
        lambda each: each.layout.data_parallel * each.layout.microbatch_sequences * each.layout.num_microbatches
        == each.row.global_batch_sequences, 2500,
    ),
    Convention(
        "a stated degree is the degree", lambda each: each.row.tensor_parallel and each.row.expert_parallel,
        lambda each: (each.layout.tensor_parallel, each.layout.expert_parallel)
        == (each.row.tensor_parallel, each.row.expert_parallel), 1000,
    ),
    Convention(
        "tokens per second and device is a step time",
        lambda each: each.step_s is not None and (each.row.measured.tokens_per_s_per_device or 0) > 20,
        lambda each: each.case.batch.tokens / each.row.measured.tokens_per_s_per_device / each.layout.world
        == pytest.approx(each.step_s, rel=0.06), 1000,
    ),
    Convention("blank chunks are one", _blank_chunks,
               lambda each: each.layout.virtual_stages == 1, 400),
    Convention("NVIDIA's fine-tuning interleaves one layer a chunk where chunks are blank",
               lambda each: not each.row.virtual_stages and each.row.said.layer_per_chunk and each.layout.pipeline_parallel > 1,
               lambda each: each.layout.virtual_stages * each.layout.pipeline_parallel == each.case.model.num_layers, 6),
    Convention("a blank context degree is one", lambda each: not each.row.context_parallel,
               lambda each: each.layout.context_parallel == 1, 0),
    Convention("a blank expert degree is one", lambda each: not each.row.expert_parallel,
               lambda each: each.layout.expert_parallel == 1, 0),
    Convention("blank expert TP is TP on old NeMo with experts", lambda each: _old_nemo(each)
               and each.layout.expert_parallel > 1 and not each.row.expert_tensor_parallel,
               lambda each: each.layout.expert_tensor_parallel == each.layout.tensor_parallel, 1),
    Convention("blank expert TP is TP on Megatron for Ascend",
               lambda each: _ascend(each) and each.case.model.is_moe and not each.row.expert_tensor_parallel,
               lambda each: each.layout.expert_tensor_parallel == each.layout.tensor_parallel, 8),
    Convention("blank expert TP is one elsewhere", lambda each: not each.row.expert_tensor_parallel
               and not _old_nemo(each) and not _ascend(each),
               lambda each: each.layout.expert_tensor_parallel == 1, 1000),
    Convention("vTrain shards nothing", lambda each: each.id.startswith("vtrain"), lambda each: each.layout.zero_stage == 0, 900),
    Convention("vTrain recomputes whole layers on many nodes", lambda each: each.id.startswith("vtrain-m"),
               lambda each: each.layout.recompute == Full(), 73),
    Convention("vTrain recomputes nothing on one", lambda each: each.id.startswith("vtrain-s"),
               lambda each: each.layout.recompute == NoRecompute(), 900),
    Convention("vTrain's multi-node cluster has 100 Gb/s a device", lambda each: each.id.startswith("vtrain-m"),
               lambda each: each.case.cluster.network.bytes_per_s == pytest.approx(12.5e9), 70),
    Convention("unknown sequence parallelism is on with TP for NVIDIA's frameworks only",
               lambda each: each.row.sequence_parallel is None,
               lambda each: each.layout.sequence_parallel
               == (each.row.framework in ("nemo", "megatron-bridge") and each.layout.tensor_parallel > 1), 30),
    Convention("Narayanan's table 1 takes micro-batch and chunks from its script",
               lambda each: each.row.model.startswith("gpt-") and each.row.source.startswith("Narayanan"),
               lambda each: each.row.microbatch_sequences is None and each.layout.microbatch_sequences == NARAYANAN[each.row.model],
               10),
    Convention("nanotron places layers by cost and counts the output layer",
               lambda each: each.row.framework == "nanotron" and each.layout.pipeline_parallel > 1,
               lambda each: sum((each.layout.stage_layers or ((),))[0]) == each.case.model.num_layers, 500),
    Convention("nanotron's rows stand on p5 nodes and recompute nothing", lambda each: each.row.framework == "nanotron",
               lambda each: each.case.cluster.name == "p5" and each.layout.recompute == NoRecompute(), 1500),
    Convention("a blank recompute is none", lambda each: not each.row.recompute and not _jax(each),
               lambda each: each.layout.recompute == NoRecompute(), 180),
    Convention("JAX keeps what its policies name, not everything", _jax,
               lambda each: not each.row.recompute and isinstance(each.layout.recompute, Selective), 30),
    Convention("NeMo since 24.07 reduces gradients in BF16", lambda each: each.row.framework_version.startswith(("24.", "25."))
               and each.row.framework == "nemo", lambda each: each.case.training.precision.gradient_bytes == 2, 100),
    Convention("layers that Megatron offloads are counted", lambda each: "cpu_offload_layers=40" in each.row.extra_settings,
               lambda each: each.case.launch.offloaded_layers == 40, 5),
    Convention("Bridge's GiB are 1e9 bytes", lambda each: "GB of 1e9:" in each.row.notes or "prints GB of 1e9" in each.row.notes,
               lambda each: each.memory_bytes == each.row.measured.memory_gib * 1e9, 8),
    Convention("TRL's weights are FP32 under full sharding, its GB 1e9 bytes", lambda each: each.row.framework.startswith("trl"),
               lambda each: each.case.implementation.full_precision_shards and each.case.training.precision.gradient_bytes == 4
               and each.memory_bytes in (None, (each.row.measured.memory_gib or 0.0) * 1e9), 4),
    Convention("TRL keeps states of large models on the host", lambda each: each.row.framework.startswith("trl"),
               lambda each: each.layout.offload == (("optimizer",) if each.row.model.endswith(("-32b", "-30b-a3b")) else ()), 4),
    Convention("TRL's smallest run kept its checkpoints on the device", lambda each: each.id.startswith("trl-")
               and each.row.recompute == "full+offload",
               lambda each: each.case.launch.offloaded_checkpoints
               == (each.row.model != "qwen3-0.6b" or each.row.sequence_tokens != 2**20), 4),
    Convention("modules whose inputs wait on the host are read", lambda each: "activation offload ['" in each.row.extra_settings,
               lambda each: each.case.launch.offloaded_modules == ("expert_fc1",), 1),
    Convention("Bridge's FP8 recipes gather FP8 weights", lambda each: each.row.framework == "megatron-bridge"
               and each.row.precision == "fp8-cs", lambda each: each.case.training.precision.weight_cast_bytes == 2.0, 10),
    Convention("torchtitan's float8 is torchao's", lambda each: _titan(each) and each.row.precision == "fp8",
               lambda each: each.precision == "fp8-torchao" and each.case.training.precision.gather_bytes == 1, 8),
    Convention("torchtitan shards parameters over its replicas", _titan,
               lambda each: each.layout.parameter_shards == each.layout.data_parallel * each.layout.context_parallel, 12),
    Convention("MindSpore's parallel optimizer keeps no whole gradients without accumulation",
               lambda each: _mindspore(each) and each.layout.num_microbatches == 1 and each.layout.optimizer_shards > 1
               and "micro_batch_num=1, micro_batch_interleave=1, gas=1;" in each.row.notes,
               lambda each: each.layout.gradient_shards == each.layout.optimizer_shards, 3),
    Convention("MindFormers runs graphs", _mindspore,
               lambda each: each.case.implementation.cuda_graphs and each.family == "mindspore", 15),
    Convention("select lists of MindFormers recompute activation functions",
               lambda each: each.row.recompute.startswith("select list"),
               lambda each: each.layout.recompute == Selective(modules=("moe_act",)), 2),
    Convention("system tests on Ascend report the first step", lambda each: "ascend-st" in each.id,
               lambda each: each.reading.kind == "first step", 17),
    Convention("runs elsewhere report all steps", lambda each: "ascend-st" not in each.id,
               lambda each: each.reading.kind != "first step", 2500),
    Convention("what swaps to the host has no memory", lambda each: "swap-" in each.row.notes,
               lambda each: each.memory_bytes is None, 3),
    Convention("FP16 on Ascend reduces FP16 gradients", lambda each: _ascend(each) and each.row.precision == "fp16",
               lambda each: each.case.training.precision.gradient_bytes == 2, 5),
)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda each: each.name)
def test_conventions_of_the_shipped_corpus(convention: Convention) -> None:
    concerned = [each for each in runs_and_refused()[0].values() if convention.concerns(each)]
    assert [each.id for each in concerned if not convention.holds(each)] == []
    assert len(concerned) >= convention.at_least


@pytest.mark.parametrize(
    ("prefix", "reason", "count"),
    [
        ("playbookfig", "layout or batch is blank", 16),
        ("ascend-st-0050", "not a transformer", 1),
        ("paper", "blank", 1),
        ("gpt2-v100-0006", "degraded", 1),
    ],
)
def test_what_cannot_be_read_says_why(prefix: str, reason: str, count: int) -> None:
    """The playbook's figures print no batch: accumulation is unknown."""
    found = [why for id_, why in runs_and_refused()[1].items() if id_.startswith(prefix)]
    assert len(found) >= count
    assert all(reason in why for why in found)


@pytest.mark.parametrize(
    ("id_", "device"),
    [("mindformers-0021", "ascend-910b3"), ("mindformers-0022", "ascend-910b"), ("mindformers-0009", "ascend-910a"),
     ("modellink-0025", "ascend-910b"), ("ascend-st-0054", "ascend-910c"), ("titan-0001", "h100-96g")],
)
def test_devices(id_: str, device: str) -> None:
    assert the_run(id_).device == device


@pytest.mark.parametrize(
    ("id_", "vocabulary", "layers"),
    [("modellink-0025", 32000, 40), ("modellink-0028", 128256, 32), ("modellink-0033", 151936, 32), ("ascend-st-0064", 151936, 6)],
)
def test_blanks_that_a_tokenizer_or_a_script_fills(id_: str, vocabulary: int, layers: int) -> None:
    model = the_run(id_).case.model
    assert (model.vocabulary, model.num_layers, model.tied_embeddings) == (vocabulary, layers, False)


def test_idle_layers_stand_where_the_script_puts_them() -> None:
    assert the_run("ascend-st-0064").layout.stage_layers == ((1, 2), (2, 1))


def test_recompute_of_a_block_counts_layers_of_a_chunk_or_of_a_stage() -> None:
    assert the_run("ascend-st-0034").layout.recompute == Full(layers=1)
    assert the_run("ascend-st-0065").layout.recompute == Full(layers=((1, 1, 1, 1), (0, 0, 0, 0)))


def test_what_is_allocated_after_a_step_is_what_the_model_keeps() -> None:
    """Steady allocated bytes of system tests against states of 18 bytes a parameter before sharding, 16 with reuse-fp32-param."""
    for id_ in ("ascend-st-0017", "ascend-st-0025", "ascend-st-0026", "ascend-st-0032", "ascend-st-0037", "ascend-st-0055",
                "ascend-st-0064"):
        each = the_run(id_)
        memory = evaluate(each.case, each.layout).memory
        states = float((memory.parameters + memory.gradients + memory.optimizer).max()) / 2**30
        steady = float(each.row.notes.split("steady allocated max=")[1].split(";")[0])
        assert states == pytest.approx(steady, rel=0.015), id_


def test_every_rule_decides_something_of_a_row_and_says_where_that_is_written_down() -> None:
    """A rule without a row is a guess; one that others always decide before is dead. Rows of ``diagnose`` are users' own."""
    diagnosed = row_of({"source": "diagnosed from run.log", "extra_settings": "implementation: torchtitan; layout: tp1 dp8"})
    used = {id(rule.then) for each in (*corpus(), diagnosed) for rule in rules_of(each.word).values()}
    assert [rule for rule in conventions().rules if id(rule.then) not in used] == []
    assert [rule for rule in conventions().rules if len(rule.source) < 10] == []


def test_every_spelling_of_a_recipe_or_a_module_has_a_row() -> None:
    rows = corpus()
    assert conventions().precisions.keys() <= {row.precision for row in rows}
    words = {word for row in rows for word in row.recompute.replace("(", ":").rstrip(")").partition(":")[2].split("+")}
    words |= {word for rule in conventions().rules for word in str(rule.then.get("recompute", "")).partition(":")[2].split("+")}
    assert conventions().recompute_words.keys() - words <= {"shared_experts"}


def test_what_no_rule_knows_is_megatron_core() -> None:
    assert row_of({}).said.implementation == "megatron-te"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"notes": "noop-layers=3,7"}, "idle layers (3, 7) of n_layers 4"),
        ({"notes": "noop-layers=1,1"}, "idle layers (1, 1) of n_layers 4"),
        ({"notes": "noop-layers=0", "n_layers": "6", "pp": "2", "vpp": "2"}, "6 layers on 4 chunks"),
    ],
)
def test_idle_layers_that_the_script_cannot_have_are_refused_in_words(cells: dict[str, str], reason: str) -> None:
    found = read_row(row_of(TINY | {"framework": "MindSpeed-LLM", "gpu": "ascend-910b"} | cells))
    assert isinstance(found, Refused)
    assert reason in found.reason


def test_nothing_that_is_read_depends_on_the_id() -> None:
    """Ids count places in a source; the same row under another id is the same case and layout."""
    for number, row in enumerate(shipped_table().rows[::7]):
        found = []
        for each in (row, replace(row, id=f"row-{number}")):
            try:
                read = run(each)
                found.append((read.case, read.layout, read.reading))
            except (ImpossibleError, UnreadableError) as why:
                found.append((str(why),))
        assert found[0] == found[1], row.id

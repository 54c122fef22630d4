"""MindFormers: PyNative YAML of 2.1, graph-mode YAML, the experimental core."""

from __future__ import annotations

import copy
import random
import types
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ascend_cases import case_of, document, found, function_of, layout_of, plans, read, refused, unread
from oracles_run import judge, needs, packages
from tests.draws import draws, seed

from meshwright.domain.label import label, recompute_word
from meshwright.domain.layout import Full, Mixed, Selective, mixed
from meshwright.frameworks import File, framework
from meshwright.frameworks.ascend.recompute_lists import parts_of
from meshwright.frameworks.ascend.stages import layer_starts, split_of
from meshwright.frameworks.editing import edit
from meshwright.frameworks.mindformers.ranges import counts_of_ranges, ids_text, parse_ids, parse_stages, stage_ranges
from meshwright.testing import any_plans

NAME = "mindformers"
GRAPH = f"{NAME}@graph"
RELEASES = (NAME, GRAPH, f"{NAME}@experimental")


@pytest.mark.parametrize("name", RELEASES)
def test_what_is_written_is_read_back(name):
    assert not unread(name)


def cases_of(some):
    return [
        {"files": {"config.yaml": next(file.text for file in framework(NAME).write(case, layout) if file.path == "config.yaml")},
         "world": case.cluster.num_devices, "argv": [], "env": {}, "checks": {}}
        for case, layout in some
    ]


@pytest.mark.oracle
@pytest.mark.slow
@needs("mindformers-2.1.0")
def test_the_framework_accepts_what_is_written():
    some = plans(NAME, many=60, each=6)
    verdicts = judge("mindformers-2.1.0", cases_of(some))
    assert not [verdict["why"] for verdict in verdicts if not verdict["accepted"]]
    for verdict, (case, layout) in zip(verdicts, some, strict=True):
        assert verdict["config"]["num_accumulation_steps"] == layout.num_microbatches
        if verdict["config"]["stages"]:
            split = split_of(case, layout)
            starts = layer_starts(split)
            flat = [
                [start, start + count - 1]
                for row, counts in zip(starts, split, strict=True)
                for start, count in zip(row, counts, strict=True)
            ]
            assert verdict["config"]["stages"] == flat


@pytest.mark.oracle
@pytest.mark.slow
@needs("mindformers-2.1.0")
def test_what_the_framework_accepts_the_limits_accept():
    """What only fails later (heads, widths, pipelines) is a silent acceptance of the parser."""
    there = framework(NAME)
    writable, later = (
        [],
        {
            f"{NAME}.{rule}"
            for rule in (
                "heads",
                "key-value-heads",
                "width",
                "sequence",
                "context-heads",
                "context-hybrid",
                "experts",
                "expert-sequence",
                "interleaved",
                "select-mlp",
                "dense-shards",
                "recompute-count",
            )
        },
    )
    for case, layout in any_plans(NAME, draws(200), seed=seed(5)):
        broken = {message.id for message in there.check(case, layout)}
        if f"{NAME}.knobs" in broken or f"{NAME}.stage-empty" in broken or isinstance(layout.recompute, Mixed):
            continue  # no key says them
        writable.append((case, layout, broken))
    texts = [
        {
            "files": {
                "config.yaml": next(file.text for file in there.writer(case, layout, "2.1", _OPTIONS) if file.path == "config.yaml")
            },
            "world": case.cluster.num_devices,
            "argv": [],
            "env": {},
            "checks": {},
        }
        for case, layout, _ in writable
    ]
    verdicts = judge("mindformers-2.1.0", texts)
    accepted = [broken - later for verdict, (_, _, broken) in zip(verdicts, writable, strict=True) if verdict["accepted"]]
    assert len(accepted) > draws(30)
    agreed = sum(not broken for broken in accepted) / len(accepted)
    assert agreed >= 0.95, agreed


_OPTIONS = __import__("meshwright.frameworks.base", fromlist=["DEFAULTS"]).DEFAULTS


@pytest.mark.oracle
@needs("mindformers-2.1.0")
def test_graph_lists_are_read_as_the_framework_reads_them():
    """``LayerSetting`` of the wheel, its methods executed on random offsets and recompute lists."""
    path = packages("mindformers-2.1.0") / "mindformers/parallel_core/training_graph/transformer/utils.py"
    names = {"np": np, "logger": types.SimpleNamespace(info=print, warning=print), "MAX_INT32": 2**31 - 1}
    setting = function_of(path, "LayerSetting", names)
    rng = random.Random(3)
    for _ in range(150):
        pp, vpp = rng.choice((2, 4, 8)), rng.choice((1, 1, 2, 3))
        layers = rng.randrange(pp * vpp * 2, 90)
        offsets = [[0] * pp for _ in range(vpp)]
        for _ in range(layers % (pp * vpp)):
            offsets[rng.randrange(vpp)][rng.randrange(pp)] += 1
        one, other = rng.randrange(pp), rng.randrange(pp)
        offsets[0][one] += 1
        offsets[0][other] -= 1
        flat = [rng.randrange(6) for _ in range(pp)]
        nested = [[rng.choice((rng.randrange(6), True, False)) for _ in range(pp)] for _ in range(vpp)]
        recompute = rng.choice((True, False, flat, nested if vpp > 1 else flat))
        its = object.__new__(setting)
        its.pp, its.pp_interleave_num, its.num_layers, its.is_zbv = pp, vpp, layers, False
        its.offset = np.array(offsets if vpp > 1 else offsets[0], np.int32)
        its._check_inputs()
        its.layer_list = np.ones((vpp, pp), np.int32) * (layers // (pp * vpp)) + its.offset
        counts = its._format_recompute_list([list(row) for row in recompute] if recompute is nested else recompute)
        reading = read(GRAPH, {
            "parallel_config.pipeline_stage": pp, "parallel_config.micro_batch_num": pp, "model.model_config.num_layers": layers,
            "model.model_config.offset": offsets if vpp > 1 else offsets[0], "model.model_config.pp_interleave_num": vpp,
            "parallel.pipeline_config.pipeline_interleave": True, "recompute_config.recompute": recompute,
        })
        assert reading.layout is not None, [str(message) for message in reading.messages]
        case = types.SimpleNamespace(
            model=types.SimpleNamespace(num_layers=layers, num_mtp_layers=0, mtp_kinds=(), kinds=()),
            implementation=types.SimpleNamespace(stage_split="even"),
        )
        split = split_of(case, reading.layout)
        assert [list(row) for row in split] == its.layer_list.tolist()
        from meshwright.frameworks.ascend.stages import counts_of

        assert [list(row) for row in counts_of(reading.layout.recompute, split)] == [list(map(int, row)) for row in counts]


@pytest.mark.oracle
@needs("mindformers-2.1.0")
def test_graph_lists_of_three_kinds_reach_the_layers_that_the_framework_reaches():
    """``LayerSetting`` of the wheel sets every layer; what it set is counted by chunk and stage."""
    path = packages("mindformers-2.1.0") / "mindformers/parallel_core/training_graph/transformer/utils.py"
    context = types.SimpleNamespace(get_auto_parallel_context=lambda key: True)
    quiet = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
    names: dict[str, Any] = {
        "np": np, "logger": quiet, "MAX_INT32": 2**31 - 1, "ms": context, "is_legacy_model": lambda: True,
    }
    setting = function_of(path, "LayerSetting", names)
    reached: set[str] = set()
    setting.set_pattern_recompute = staticmethod(lambda layer, p, comm=False, *_, **__: reached.add("comm" if comm else "mlp_act"))
    layer = types.SimpleNamespace(set_comm_fusion=lambda _: None, recompute=lambda **_: reached.add("full"))
    rng = random.Random(7)
    for _ in range(80):
        pp, vpp = rng.choice((2, 4)), rng.choice((1, 1, 2, 3))
        layers = pp * vpp * rng.randrange(2, 6)

        each = layers // (pp * vpp)  # nested lists with more are refused: the second default pattern finds no plain integers

        def counts(pp: int = pp, vpp: int = vpp, each: int = each) -> object:
            flat = [rng.randrange(each * vpp + 2) for _ in range(pp)]
            nested = [[rng.randrange(each + 1) for _ in range(pp)] for _ in range(vpp)]
            return rng.choice((False, True, flat, nested if vpp > 1 else flat))

        lists = {key: counts() for key in ("recompute", "select_recompute", "select_comm_recompute")}
        own = types.SimpleNamespace(
            recompute_slice_activation=False, select_recompute_exclude=False, select_comm_recompute_exclude=False,
            **copy.deepcopy(lists),
        )
        config = types.SimpleNamespace(
            pipeline_stage=pp, pipeline_model_parallel_size=pp, gradient_aggregation_group=4, recompute=own,
            swap=types.SimpleNamespace(swap=False),
        )
        its = setting(layers, 0, config, vpp)
        wanted: Counter[tuple[int, int, tuple[str, ...]]] = Counter()
        for index in range(layers):
            reached.clear()
            its.set_recompute(layer, index)
            if reached:
                wanted[int(its.interleave_ids[index]), int(its.pp_ids[index]), tuple(sorted(reached))] += 1
        reading = read(GRAPH, {
            "parallel_config.pipeline_stage": pp, "parallel_config.micro_batch_num": pp, "model.model_config.num_layers": layers,
            "model.model_config.pp_interleave_num": vpp, "parallel.pipeline_config.pipeline_interleave": True,
            "model.model_config.use_flash_attention": True, **{f"recompute_config.{key}": value for key, value in lists.items()},
        })
        assert reading.layout is not None, [str(message) for message in reading.messages]
        split = ((layers // (pp * vpp),) * pp,) * vpp
        said = Counter({
            (chunk, stage, getattr(treatment, "modules", ("full",))): count
            for treatment, grid in parts_of(reading.layout.recompute, split)
            for chunk, row in enumerate(grid) for stage, count in enumerate(row) if count
        })
        assert said == wanted, lists


GRAPH_BASE: dict[str, object] = {
    "parallel_config.data_parallel": 2, "parallel_config.model_parallel": 4, "parallel_config.pipeline_stage": 4,
    "parallel_config.micro_batch_num": 16, "parallel_config.use_seq_parallel": True, "runner_config.batch_size": 1,
    "parallel.enable_parallel_optimizer": True, "model.model_config.num_layers": 32, "model.model_config.seq_length": 4096,
    "model.model_config.use_flash_attention": True, "model.model_config.compute_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("facts", "devices", "expected"),
    [  # public YAMLs: configs/{qwen3,glm4}, research/{llama3_1,mixtral,qwen2_5,telechat2,deepseek3} of MindFormers 1.5 to 2.1
        (
            (1, 4, 4, 1, 1, 4, False, 1, False, 64, [-1, -1, 1, 1], True, {}),
            16,
            "tp4 pp4 dp1 mb1 zero0 recompute=full layers=[15,15,17,17]",
        ),
        (
            (2, 1, 4, 1, 1, 64, True, 1, True, 40, [-1, 0, 2, -1], [6, 3, 2, 3], {}),
            8,
            "tp1 pp4 dp2 mb1 zero1 recompute=full:[6,3,2,3] layers=[9,10,12,9]",
        ),
        ((1, 8, 8, 1, 1, 256, True, 1, False, 80, 0, False, {}), 64, "tp8 pp8 dp1 mb1 sp zero0"),
        ((8, 1, 1, 1, 1, 1, False, 1, True, 32, 0, True, {}), 8, "tp1 pp1 dp8 mb1 zero1 recompute=full"),
        (
            (2, 4, 2, 1, 2, 16, True, 1, True, 32, 0, True, {"model.model_config.num_experts": 8}),
            16,
            "tp4 pp2 ep2 dp2 mb1 sp zero1 recompute=full",
        ),
        ((1, 2, 2, 16, 1, 64, False, 1, True, 48, 0, True, {}), 64, "tp2 cp16 pp2 dp1 mb1 zero1 recompute=full"),
        (
            (1, 2, 4, 1, 1, 128, True, 1, False, 48, [-1, 1, 1, -1], [3, 2, 0, 0], {}),
            8,
            "tp2 pp4 dp1 mb1 sp zero0 recompute=full:[3,2,0,0] layers=[11,13,13,11]",
        ),
        ((2, 8, 2, 1, 1, 128, True, 1, True, 64, 0, True, {}), 32, "tp8 pp2 dp2 mb1 sp zero1 recompute=full"),
        ((4, 1, 2, 1, 1, 16, True, 1, True, 28, 0, [7, 7], {}), 8, "tp1 pp2 dp4 mb1 zero1 recompute=full:7"),
        (
            (
                128,
                4,
                2,
                1,
                2,
                4,
                True,
                1,
                True,
                30,
                0,
                [3, 0],
                {"model.model_config.num_experts": 16, "parallel.parallel_optimizer_config.optimizer_weight_shard_size": 2},
            ),
            1024,
            "tp4 pp2 ep2 dp128 mb1 sp zero1 shard2 recompute=full:[3,0]",
        ),
        (
            (
                8,
                8,
                8,
                1,
                1,
                8,
                True,
                3,
                True,
                96,
                [[-1, -1, 0, 0, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, -1]],
                False,
                {},
            ),
            512,
            "tp8 pp8 vp3 dp8 mb1 sp zero1 layers=[3,3,4,4,4,4,4,4;3,4,4,4,4,4,4,4;4,4,4,5,5,5,5,3]",
        ),
        (
            (
                16,
                4,
                16,
                1,
                8,
                32,
                True,
                1,
                True,
                61,
                [1] * 15 + [-1],
                [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 2, 0],
                {"model.model_config.mtp_depth": 1, "model.model_config.num_experts": 256},
            ),
            1024,
            "tp4 pp16 ep8 dp16 mb1 sp zero1 recompute=full:[3,4,4,4,4,4,4,4,4,4,4,4,4,3,2,0] "
            "layers=[4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1]",
        ),
    ],
)
def test_public_graph_files_are_read(facts, devices, expected):
    dp, mp, pp, cp, ep, m, sp, vpp, optimizer, layers, offset, recompute, more = facts
    reading = read(
        NAME,
        {
            "parallel_config.data_parallel": dp,
            "parallel_config.model_parallel": mp,
            "parallel_config.pipeline_stage": pp,
            "parallel_config.context_parallel": cp,
            "parallel_config.expert_parallel": ep,
            "parallel_config.micro_batch_num": m,
            "parallel_config.use_seq_parallel": sp,
            "parallel.enable_parallel_optimizer": optimizer,
            "recompute_config.recompute": recompute,
            "model.model_config.num_layers": layers,
            "model.model_config.offset": offset,
            "model.model_config.pp_interleave_num": vpp,
            "parallel.pipeline_config.pipeline_interleave": vpp > 1,
            "runner_config.batch_size": 1,
            **more,
        },
    )
    assert reading.version == "graph" and reading.layout is not None, [str(message) for message in reading.messages]
    assert label(reading.layout, overlap=reading.layout.overlap) == expected and reading.said.devices == devices


@pytest.mark.parametrize(
    ("facts", "expected"),
    [  # configs/deepseek3 and configs/deepseek4 of the wheel 2.1.0
        (
            {
                "training.global_batch_size": 8,
                "parallelism.sequence_parallel": True,
                "parallelism.pipeline_parallel_layers_per_stage": None,
                "model.num_hidden_layers": 16,
            },
            "tp1 pp1 dp8 mb1 zero3",
        ),
        (
            {
                "training.global_batch_size": 8,
                "parallelism.expert_parallel": 8,
                "model.n_routed_experts": 256,
                "recompute.mode": "full",
                "recompute.full_recompute_layer": ["0-42"],
                "model.num_hidden_layers": 43,
                "parallelism.reshard_after_forward_policy": "default",
            },
            "tp1 pp1 ep8 dp8 mb1 zero3 recompute=full",
        ),
    ],
)
def test_public_pynative_files_are_read(facts, expected):
    reading = read(NAME, {"parallelism.data_parallel_shard": -1, "training.local_batch_size": 1, **facts}, devices=8)
    assert reading.version == "2.1" and reading.layout is not None
    assert label(reading.layout, overlap=reading.layout.overlap) == expected


PYNATIVE_BASE: dict[str, object] = {
    "training.local_batch_size": 1,
    "training.global_batch_size": 64,
    "parallelism.pipeline_parallel": 4,
    "model.num_hidden_layers": 20,
    "parallelism.data_parallel_shard": -1,
}


@pytest.mark.parametrize(
    ("settings", "word", "layers"),
    [
        ({"recompute.mode": "full", "recompute.full_recompute_layer": ["0-19"]}, "full", None),
        ({"recompute.mode": "full", "recompute.full_recompute_layer": ["0", "5-6", 10]}, "full:[1,2,1,0]", None),
        (
            {"recompute.mode": "select", "recompute.select_module": {"self_attention.core_attention": ["0-19"]}},
            "selective:core_attn",
            None,
        ),
        (
            {
                "recompute.mode": "select",
                "recompute.select_module": {"input_layernorm": ["0-19"], "pre_mlp_layernorm": ["0-19"], "mlp": ["0-19"]},
            },
            "selective:layernorm,mlp",
            None,
        ),
        ({"recompute.mode": "select", "recompute.select_module": {"mlp.activation_func": ["0-19"]}}, "none", None),
        ({"recompute.mode": "select", "recompute.select_module": {"mlp": ["0-3"]}}, "none", None),
        ({"parallelism.pipeline_parallel_layers_per_stage": ["0-3", "4-9", "10-15", "16-19"]}, "none", ((4, 6, 6, 4),)),
        (
            {
                "parallelism.pipeline_parallel_layers_per_stage": ["0-3,10-11", "4-5,12-14", "6-7,15-16", "8-9,17-19"],
                "parallelism.pipeline_parallel_interleave_num": 2,
            },
            "none",
            ((4, 2, 2, 2), (2, 3, 2, 3)),
        ),
    ],
)
def test_ranges_are_read(settings, word, layers):
    reading = read(NAME, {**PYNATIVE_BASE, **settings}, devices=16)
    assert reading.layout is not None, [str(message) for message in reading.messages]
    assert recompute_word(reading.layout.recompute) == word and reading.layout.stage_layers == layers
    mapped = word != "none" or "recompute.mode" not in settings
    assert bool([message for message in reading.messages if message.id.startswith("import.select")]) != mapped


@pytest.mark.parametrize(
    "ranges", [["0-3", "5-9", "10-15", "16-19"], ["0-4", "4-9", "10-15", "16-19"], ["0-3", "4-9", "10-15", "16-18"]]
)
def test_gaps_and_overlaps_are_found(ranges):
    reading = read(NAME, {**PYNATIVE_BASE, "parallelism.pipeline_parallel_layers_per_stage": ranges}, devices=16)
    assert f"{NAME}.range-gap" in found(NAME, reading)
    whole = read(
        NAME, {**PYNATIVE_BASE, "parallelism.pipeline_parallel_layers_per_stage": ["0-3", "4-9", "10-15", "16-19"]}, devices=16
    )
    assert f"{NAME}.range-gap" not in found(NAME, whole)


@pytest.mark.parametrize(
    ("shard", "dense", "policy", "shards"),
    [
        (-1, None, "always", (4, 4, 4)),
        (-1, None, "never", (4, 4, 1)),
        (2, None, "default", (2, 2, 1)),
        (-1, 2, "always", (2, 2, 2)),
        (1, None, "always", (1, 1, 1)),
    ],
)
def test_fsdp_groups(shard, dense, policy, shards):
    more = {} if dense is None else {"parallelism.dense_fsdp_shard_size": dense}
    reading = read(
        NAME,
        {**PYNATIVE_BASE, "parallelism.data_parallel_shard": shard, "parallelism.reshard_after_forward_policy": policy, **more},
        devices=16,
    )
    layout = reading.layout
    assert layout is not None and (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards) == shards


def test_ranges_and_their_texts():
    assert stage_ranges(((4, 4), (1, 3))) == ["0-3,8", "4-7,9-11"]
    assert counts_of_ranges(parse_stages(["0-3,8", "4-7,9-11"])) == ((4, 4), (1, 3))
    assert ids_text([9, 0, 1, 2, 2]) == ["0-2", "9"] and parse_ids(["0-2", "9"]) == {0, 1, 2, 9}
    assert parse_ids(["2-0"]) is None and parse_stages(["a"]) is None and parse_ids("0-2") is None


PYNATIVE_GOOD = {"tensor_parallel": 2, "pipeline_parallel": 4, "zero": 3}
GRAPH_GOOD = {"tensor_parallel": 2, "pipeline_parallel": 4, "zero": 1}


@pytest.mark.parametrize(
    ("name", "rule", "knobs", "model"),
    [
        (NAME, "sequence-parallel", {"sequence_parallel": False}, None),
        (
            NAME,
            "expert-region",
            {"expert_parallel": 16, "optimizer_shards": 2, "gradient_shards": 2, "parameter_shards": 2},
            "qwen3-30b-a3b",
        ),
        (
            NAME,
            "dense-shards",
            {"context_parallel": 4, "data_parallel": 2, "optimizer_shards": 2, "gradient_shards": 2, "parameter_shards": 2},
            "qwen3-30b-a3b",
        ),
        (NAME, "select-mlp", {"recompute": Selective(modules=("mlp",))}, "qwen3-30b-a3b"),
        (NAME, "knobs", {"gradient_shards": 1, "parameter_shards": 1}, None),
        (NAME, "stage-empty", {"stage_layers": ((0, 18, 9, 9),)}, None),
        (NAME, "recompute-count", {"recompute": Full(layers=((99, 0, 0, 0),))}, None),
        (NAME, "model", {}, "gpt-oss-120b"),
        (NAME, "device", {}, None),
        (NAME, "numbers", {}, None),
        (GRAPH, "micro-batches", {"num_microbatches": 2}, None),
        (GRAPH, "expert-data", {"expert_parallel": 32}, "qwen3-30b-a3b"),
        (GRAPH, "expert-shards", {"optimizer_shards": 4, "expert_parallel": 64}, "qwen3-30b-a3b"),
        (GRAPH, "stage-sum", {"stage_layers": ((9, 9, 9, 8),)}, None),
        (GRAPH, "stage-empty", {"stage_layers": ((18, 0, 9, 9),)}, None),
        (GRAPH, "expert-sequence", {"sequence_parallel": False}, "qwen3-30b-a3b"),
        (GRAPH, "knobs", {"recompute": Selective()}, None),
    ],
)
def test_each_limit_fires_on_its_mutation(name, rule, knobs, model):
    good = GRAPH_GOOD if name == GRAPH else PYNATIVE_GOOD
    base = case_of(name)
    assert not refused(name, base, layout_of(base, **good))
    case = case_of(name, model) if model else base
    if rule == "device":
        from meshwright.catalog import cluster_for

        case = replace(case, cluster=cluster_for("h100-sxm", num_devices=64))
    if rule == "numbers":
        case = replace(case, training=replace(case.training, precision=replace(case.training.precision, name="fp8-delayed")))
    layout = layout_of(case, **{key: value for key, value in good.items() if key not in knobs})
    assert f"{NAME}.{rule}" in refused(name, case, replace(layout, **knobs))


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        ("dead-key", {"parallelism.data_parallel_shard_strategy": "optim"}),
        ("default-schedule", {"parallelism.pipeline_parallel_interleave_num": 5}),
        ("recompute-layers", {"recompute.mode": "full", "recompute.full_recompute_layer": ["0-20"]}),
        ("recompute-unused", {"recompute.full_recompute_layer": ["0-1"]}),
        ("recompute-empty", {"recompute.mode": "full"}),
        ("deterministic", {"training.deterministic": True}),
    ],
)
def test_each_pynative_check_fires_on_its_mutation(check, bad):
    assert f"{NAME}.{check}" not in found(NAME, read(NAME, PYNATIVE_BASE, devices=16))
    assert f"{NAME}.{check}" in found(NAME, read(NAME, {**PYNATIVE_BASE, **bad}, devices=16))


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        ("dataset-strategy", {"parallel.full_batch": False, "parallel.dataset_strategy": [[1, 1], [1, 1]]}),
        ("full-batch", {"parallel.full_batch": True, "parallel.dataset_strategy": [[2, 1]]}),
        ("micro-batch-num", {"parallel_config.pipeline_stage": 1}),
        ("accumulation", {"runner_config.gradient_accumulation_steps": 2}),
        ("interleave-off", {"model.model_config.pp_interleave_num": 2}),
        ("recompute-length", {"recompute_config.recompute": [1, 1, 1, 1, 1]}),
        ("slice-activation", {"recompute_config.recompute_slice_activation": True, "use_legacy": False}),
        ("copies", {"micro_batch_interleave_num": 2, "use_legacy": False}),
        ("context-flash", {"parallel_config.context_parallel": 2, "model.model_config.use_flash_attention": False}),
        ("whole-states", {"parallel.enable_parallel_optimizer": False}),
    ],
)
def test_each_graph_check_fires_on_its_mutation(check, bad):
    assert f"{NAME}.{check}" not in found(GRAPH, read(GRAPH, GRAPH_BASE))
    assert f"{NAME}.{check}" in found(GRAPH, read(GRAPH, {**GRAPH_BASE, **bad}))


@pytest.mark.parametrize(
    ("settings", "identifier"),
    [
        ({"model.model_config.offset": [1, 0, 0, 0]}, "offset-sum"),
        ({"model.model_config.offset": [1, -1]}, "offset-shape"),
        ({"model.model_config.offset": [[0, 0, 0, 0], [0, 0, 0, 0]]}, "offset-chunks"),
        ({"recompute_config.recompute": [[1, 1], "x"]}, "recompute-list"),
    ],
)
def test_offsets_that_do_not_fit_are_refused_in_its_words(settings, identifier):
    reading = read(GRAPH, {**GRAPH_BASE, **settings})
    assert reading.layout is None and f"{NAME}.{identifier}" in {message.id for message in reading.messages}


@pytest.mark.parametrize(
    ("settings", "word", "remarks"),
    [
        ({"select_recompute": True}, "selective:mlp_act", 0),
        ({"select_recompute": [2, 2, 1, 0]}, "selective:mlp_act:[2,2,1,0]", 0),
        ({"recompute": [1, 0, 0, 0], "select_recompute": [3, 2, 1, 0], "select_comm_recompute": [2, 2, 2, 0]},
         "full:[1,0,0,0]+selective:comm,mlp_act:[1,2,1,0]+selective:comm:[0,0,1,0]+selective:mlp_act:[1,0,0,0]", 0),
        ({"recompute": True, "select_recompute": True}, "full", 0),
        ({"select_recompute": {"feed_forward\\.mul": [3, 1, 1, 1], "feed_forward\\.w1\\.activation\\.silu": [2, 1, 1, 1],
                               "feed_forward\\.w2\\.reshape": [8, 8, 8, 8]}}, "selective:mlp_act:[2,1,1,1]", 0),
        ({"select_recompute": ["mlp\\.mul", "mlp\\.activation_func\\.silu"]}, "selective:mlp_act", 0),
        ({"select_recompute": {"attention_norm": [1, 1, 1, 1], "ffn_norm": [1, 1, 1, 1]}}, "selective:layernorm:[1,1,1,1]", 0),
        ({"select_recompute": {"attention\\.wq": [1, 1, 1, 1]}}, "none", 1),
        ({"select_comm_recompute": {".*\\.norm": [6, 2, 1, 0], ".*\\.w_qkv\\.reshape": [6, 2, 1, 0]}},
         "selective:comm:[6,2,1,0]", 0),
        ({"select_comm_recompute": {"add": [1, 1, 1, 1]}}, "none", 1),
        ({"select_recompute": False, "select_comm_recompute": []}, "none", 0),
    ],
)
def test_lists_are_read_by_what_they_recompute(settings, word, remarks):
    reading = read(GRAPH, {**GRAPH_BASE, **{f"recompute_config.{key}": value for key, value in settings.items()}})
    assert reading.layout is not None and recompute_word(reading.layout.recompute) == word
    assert len([message for message in reading.messages if message.id == "import.select"]) == remarks


def test_without_flash_attention_the_core_of_every_layer_is_said_to_be_recomputed():
    off = {"recompute_config.select_recompute": True, "model.model_config.use_flash_attention": False}
    (message,) = (each for each in read(GRAPH, {**GRAPH_BASE, **off}).messages if each.id == "import.select")
    assert "attention core of every layer" in str(message)


def test_lists_that_no_chunk_can_have_are_refused():
    case = case_of(GRAPH)
    grids = {("mlp_act",): ((1, 0, 0, 0),), ("comm",): ((1, 0, 0, 0),)}
    recompute = mixed([(Selective(modules=modules), counts) for modules, counts in grids.items()], ((9, 9, 9, 9),))
    layout = layout_of(case, tensor_parallel=4, pipeline_parallel=4, recompute=recompute)
    assert f"{NAME}.recompute-lists" in {message.id for message in framework(GRAPH).check(case, layout)}


YAML = """# data below
parallel_config:
  data_parallel: &dp 1  # replicas
  model_parallel: 4
  pipeline_stage: 4  # stages
  micro_batch_num: 4
  use_seq_parallel: False
parallel:
  full_batch: False
  dataset_strategy: [[*dp, 1], [*dp, 1]]
  enable_parallel_optimizer: False
runner_config:
  batch_size: 1
recompute_config:
  recompute: True
model:
  model_config:
    num_hidden_layers: 64
    offset: [-1, -1, 1, 1]  # memory
"""


def test_an_edit_changes_what_the_layout_says_and_nothing_else():
    case = case_of(GRAPH, "qwen3-32b", devices=16, batch=4)
    reading = framework(NAME).read([File(path="run.yaml", text=YAML)])
    assert reading.layout is not None
    other = replace(
        reading.layout,
        pipeline_parallel=2,
        tensor_parallel=8,
        sequence_parallel=True,
        stage_layers=None,
        recompute=Full(layers=((20, 12),)),
    )
    edited = edit(framework(NAME), reading, case, other)
    (file,) = edited.files
    changed = [line for line in edited.diff.splitlines() if line.startswith(("+", "-")) and not line.startswith(("+++", "---"))]
    assert sorted(changed) == sorted([
        "-  model_parallel: 4", "-  pipeline_stage: 4  # stages", "+  model_parallel: 8", "+  pipeline_stage: 2  # stages",
        "-  use_seq_parallel: False", "+  use_seq_parallel: true", "-  recompute: True", "+  recompute: [20, 12]",
        "-    offset: [-1, -1, 1, 1]  # memory",
    ])
    again = framework(NAME).read([file])
    assert again.layout == framework(GRAPH).normal(case, other)
    assert edited.meaning.resume == "convert"


@pytest.mark.parametrize(("settings", "release"), [
    (PYNATIVE_BASE, "2.1"), (GRAPH_BASE, "graph"), ({"parallel_config.tensor_model_parallel_size": 2}, "experimental"),
])
def test_the_release_is_seen(settings, release):
    assert read(NAME, settings, devices=16).version == release
    assert document(settings)


@pytest.mark.parametrize(
    "name", ["mindformers@graph", "mindformers", "mindspeed-core-ms", "mindspeed-core-ms@br_master", "mindspeed-llm"]
)
@pytest.mark.parametrize(
    "odd", [10**12, -1, 0, True, "x", None, [1], [[1], []], {"a": 1}, 0.5, "[1,", [10**30], [["x"]], "0-99999999"]
)
def test_odd_values_are_messages_and_never_errors(name, odd):
    base, _, _ = name.partition("@")
    if name in {"mindspeed-core-ms@br_master", "mindspeed-llm"}:
        words = str(odd).replace(" ", "").replace("'", "")
        keys = (
            "--num-layers",
            "--pipeline-model-parallel-size",
            "--num-layer-list",
            "--noop-layers",
            "--micro-batch-size",
            "--recompute-num-layers",
            "--num-layers-per-virtual-pipeline-stage",
            "--pipeline-model-parallel-layout",
            "--zero_shard_size",
        )
        for key in keys:
            reading = read(
                name,
                "torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 8 "
                f"--global-batch-size 8 --pipeline-model-parallel-size 4 {key} '{words}'\n",
            )
            found(name, reading)
        return
    sections = {"mindformers@graph": GRAPH_BASE, "mindformers": PYNATIVE_BASE}
    start = sections.get(name, {"parallel_config.pipeline_model_parallel_size": 4, "model_config.num_layers": 16})
    more = [
        "recompute_config.recompute",
        "model.model_config.offset",
        "parallel.pipeline_config.pipeline_interleave",
        "recompute.full_recompute_layer",
        "recompute.select_module",
        "parallelism.pipeline_parallel_layers_per_stage",
        "parallel_config.num_layer_list",
        "parallel_config.recompute_config.recompute",
        "parallel_config.virtual_pipeline_model_parallel_size",
    ]
    for key in (*start, *more):
        reading = read(name, {**start, key: odd}, devices=16)
        found(base if name == "mindformers" else name, reading)
        for message in reading.messages:
            assert str(message)

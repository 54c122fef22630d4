"""The template of the guide in seed 003, its JSON and its claims, and mutations of it: nothing is recognised by its text."""

from __future__ import annotations

import json
import random

import pytest
from check_cases import case_of, found, ids, judged

from meshwright.check.messages import messages
from meshwright.check.rules import file_rules
from meshwright.check.run import CHECKS
from meshwright.check.strangers import strangers
from meshwright.check.surface import keys

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")

FLAGS: dict[str, object] = {
    "--tensor-model-parallel-size": 8, "--pipeline-model-parallel-size": 16, "--micro-batch-size": 1,
    "--global-batch-size": 2048, "--gradient-accumulation-steps": 16, "--seq-length": 4096,
    "--max-position-embeddings": 4096, "--use-flash-attn": True, "--bf16": True, "--sequence-parallel": True,
    "--overlap-grad-reduce": True, "--deepspeed": True, "--deepspeed_config": "ds_config.json",
}
DEEPSPEED = {
    "zero_optimization": {"stage": 3, "contiguous_gradients": True, "overlap_comm": True},
    "activation_checkpointing": {"partition_activations": True},
}
FILES = (messages, keys, file_rules, strangers)
"""The checks that read the files alone."""
CLAIMS = {"tokens_per_s": 15_000.0, "tflops_per_device": 150.0}


def script(flags: dict[str, object], *, nodes: int = 128, per_line: int = 1, head: str = "") -> str:
    """A launch script with so many flags on a line."""
    words = [name if value is True else f"{name} {value}" for name, value in flags.items()]
    lines = [" ".join(words[place : place + per_line]) for place in range(0, len(words), per_line)]
    launch = f"python -m torch.distributed.launch --nproc_per_node 8 --nnodes {nodes} pretrain_gpt.py"
    return head + " \\\n    ".join([launch, *lines]) + "\n"


def check_template(
    flags=None, deepspeed=None, *, version="main", devices=1024, batch=2048, text=None, document=None, claims=None, checks=CHECKS
):
    case = case_of("llama2-70b", "a100-80g-sxm", devices, batch, 4096, "megatron")
    files = {
        "train.sh": text or script(flags or FLAGS, nodes=devices // 8),
        "ds_config.json": document or json.dumps(deepspeed or DEEPSPEED, indent=1),
    }
    return judged(files, f"megatron@{version}", case, claims or CLAIMS, checks=checks)


def texts(checked, id):
    return [str(each.message) for each in found(checked, id)]


def test_everything_that_is_wrong_with_the_template_is_found():
    checked = check_template()
    assert not checked.ok
    (batch,) = found(checked, "megatron.accumulation")
    assert all(number in str(batch.message) for number in ("128", "2048", "256"))
    assert batch.expected == 256
    unknown = " ".join(texts(checked, "megatron.unknown-key"))
    assert all(flag in unknown for flag in ("--gradient-accumulation-steps", "--deepspeed", "--deepspeed_config"))
    assert "no effect" in texts(checked, "megatron.flash-attention")[0]
    (mixed,) = texts(checked, "megatron.two-frameworks")
    assert "--overlap-grad-reduce" in mixed
    (zero,) = found(checked, "megatron.zero-pipeline")
    assert zero.value == 3
    assert any("train_batch_size" in str(each.message) for each in checked.findings if "ds_config" in each.message.path)
    assert "megatron.connections" in ids(checked, "error")
    (apart,) = found(checked, "check.claims-disagree")
    assert 23 <= apart.value["ratio"] <= 25
    assert any("003:" in each.source for each in checked.findings)


def test_comments_in_the_json_are_found_and_the_rest_is_read_all_the_same():
    document = json.dumps(DEEPSPEED, indent=1).replace('"stage": 3,', '"stage": 3, // all of it')
    checked = check_template(document=document)
    assert "json.comment" in ids(checked, "error")
    assert found(checked, "megatron.zero-pipeline")


def test_the_template_as_a_web_page_flattens_it():
    """No line breaks, backslashes before every flag, dots for what is left out, comments that swallow their commas."""
    words = [name if value is True else f"{name} {value}" for name, value in FLAGS.items()]
    text = "python -m torch.distributed.launch \\--nproc_per_node 8 --nnodes 128 ... \\" + " \\".join(words) + "\n"
    document = '{"zero_optimization": {"stage": 3, // most"contiguous_gradients": true // yes},"other": {"a": true // b}\n}\n'
    checked = check_template(text=text, document=document)
    for id in ("megatron.accumulation", "megatron.unknown-key", "megatron.two-frameworks", "megatron.zero-pipeline",
               "megatron.connections", "check.claims-disagree", "json.comment"):
        assert found(checked, id), id


PRINTED = """{"zero_optimization": {"stage": 3, // 显存优化级别(Stage-3 最激进)"contiguous_gradients": true,\
"overlap_comm": true // 通信与计算重叠},"activation_checkpointing": {"partition_activations": true // 激活值分片存储}
}
"""
"""003:83 as it stands there: one line whose comments swallow what follows."""


def test_the_guides_json_as_printed_is_one_finding_among_the_others():
    checked, clean = check_template(document=PRINTED), check_template()
    assert len(found(checked, "json.comment")) == 1
    lost = ids(clean) - ids(checked)
    assert not lost, lost


MUTATIONS = [
    # what changes in the flags, in the JSON, devices; rules that must fire, rules that must not
    ({"--gradient-accumulation-steps": 256}, {}, 1024, {"megatron.unknown-key"}, {"megatron.accumulation"}),
    ({"--gradient-accumulation-steps": None}, {}, 1024, set(), {"megatron.accumulation"}),
    ({"--gradient-accumulation-steps": 32}, {}, 1024, {"megatron.accumulation"}, set()),
    ({"--micro-batch-size": 2, "--gradient-accumulation-steps": 128}, {}, 1024, set(), {"megatron.accumulation"}),
    ({"--micro-batch-size": 4}, {}, 1024, {"megatron.accumulation"}, set()),
    ({"--tensor-model-parallel-size": 4}, {}, 1024, {"megatron.accumulation", "megatron.connections"}, set()),
    ({"--tensor-model-parallel-size": 4}, {}, 512, {"megatron.accumulation"}, set()),
    ({"--tensor-model-parallel-size": 1, "--sequence-parallel": None}, {}, 1024, set(), {"megatron.connections"}),
    ({"--use-flash-attn": None}, {}, 1024, set(), {"megatron.flash-attention"}),
    ({"--overlap-grad-reduce": None}, {}, 1024, {"megatron.unknown-key"}, {"megatron.two-frameworks"}),
    ({"--deepspeed": None, "--deepspeed_config": None}, {}, 1024, set(), {"megatron.two-frameworks"}),
    ({"--deepspeed": None}, {}, 1024, {"megatron.two-frameworks"}, set()),
    ({"--pipeline-model-parallel-size": 8}, {}, 1024, {"megatron.zero-pipeline"}, set()),
    ({"--pipeline-model-parallel-size": 1}, {}, 1024, set(), {"megatron.zero-pipeline"}),
    ({}, {"zero_optimization": {"stage": 2}}, 1024, {"megatron.zero-pipeline"}, set()),
    ({}, {"zero_optimization": {"stage": 1}}, 1024, set(), {"megatron.zero-pipeline"}),
    ({}, {"zero_optimization": {"stage": 0}}, 1024, set(), {"megatron.zero-pipeline"}),
    ({}, {"train_micro_batch_size_per_gpu": 1}, 1024, set(), {"megatron.deepspeed-batch"}),
    ({}, {"train_batch_size": 2048}, 1024, set(), {"megatron.deepspeed-batch"}),
    ({"--no-such-flag": 3}, {}, 1024, {"megatron.unknown-key"}, set()),
    ({"--attention-backend": "flash", "--use-flash-attn": None}, {}, 1024, set(), {"megatron.flash-attention"}),
    ({"--data-parallel-size": 4}, {}, 1024, {"megatron.data-parallel", "megatron.unknown-key"}, set()),
    ({"--data-parallel-size": 8}, {}, 1024, {"megatron.unknown-key"}, {"megatron.data-parallel"}),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=range(len(MUTATIONS)))
def test_mutations_of_the_template(mutation):
    flags, document, devices, fire, silent = mutation
    changed = {name: value for name, value in {**FLAGS, **flags}.items() if value is not None}
    shuffled = list(changed.items())
    random.Random(len(shuffled) + devices).shuffle(shuffled)
    text = script(dict(shuffled), nodes=devices // 8, per_line=3, head="# another one\n\n")
    checked = check_template(text=text, document=json.dumps({**DEEPSPEED, **document}), devices=devices, checks=FILES)
    there = ids(checked)
    assert fire <= there
    assert not silent & there

"""A user's own files with another layout: only what the layout decides changes, and what is left to do is said."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.documents.shell import parse_shell
from meshwright.documents.tree import parse_json_with_comments, parse_tree
from meshwright.domain.layout import Layout
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.resume import CUT, SHARDED, changed_knobs, meaning
from meshwright.testing.plans import draw_plan, is_legal
from meshwright.testing.promises import configuration, read_back

NAMES = (
    "accelerate", "bridge", "chatlearn", "deepspeed", "llama-factory-hf", "llama-factory-megatron", "megatron",
    "megatron-deepspeed", "mindformers", "mindspeed-core-ms", "mindspeed-llm", "ms-swift-megatron", "nanotron", "picotron",
    "slime", "torchtitan",
)


def plan_pair(name, seed, *, same_world=True):
    """A case with two legal layouts."""
    there, choose = framework(name), random.Random(seed).choice
    while True:
        case, one = draw_plan(there, name, choose)
        if not is_legal(there, case, one):
            continue
        for _ in range(30):
            _, two = draw_plan(there, name, choose)
            rank = two.data_parallel * two.microbatch_sequences
            two = replace(two, num_microbatches=max(1, case.batch.global_batch_sequences // rank))
            fits = (two.world == one.world) == same_world and two.world <= case.cluster.num_devices
            if fits and is_legal(there, case, two):
                return there, case, one, two


def commented(file):
    """A YAML or TOML file with a comment above each line that begins in column 0; scripts as they are."""
    if not file.path.endswith((".yaml", ".toml")):
        return file
    lines = [f"# note {n}\n{line}" if re.match(r"[\w\[]", line) else line for n, line in enumerate(file.text.split("\n"))]
    return replace(file, text="\n".join(lines))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_another_plan_of_the_case_is_read_back_and_notes_stay(name, line_end):
    there, case, one, two = plan_pair(name, 7)
    files = [commented(file) for file in configuration(there.write(case, one))]
    files = [replace(file, text=file.text.replace("\n", line_end)) for file in files]
    edited = edit(there, read_back(there, case, files), case, two)
    changed = {file.path: file for file in edited.files}
    again = [changed.get(file.path, file) for file in files]
    assert read_back(there, case, again).layout == there.normal(case, two), edited.diff
    assert edited.messages == ()
    for before, after in zip(files, again, strict=True):
        assert re.findall("# note .*", before.text) == re.findall("# note .*", after.text), before.path
        if line_end == "\r\n":
            assert "\n" not in after.text.replace("\r\n", "")
    assert {one.key for one in edited.edits} and edited.diff.startswith("--- a/")
    assert edited.meaning == meaning(there.resume, changed_knobs(there.normal(case, one), two))


ONE_REPLICA = {
    "megatron": {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"},
    "mindspeed-llm": {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"},
    "bridge": {"ddp.use_distributed_optimizer", "ddp.overlap_grad_reduce", "ddp.overlap_param_gather"},
    "deepspeed": {"zero_optimization.stage"},
    "nanotron": {"optimizer.zero_stage"},
}


@pytest.mark.parametrize("name", ONE_REPLICA)
def test_one_replica_leaves_switches_that_mean_nothing_then(name):
    there = framework(name)
    tp, device = 1 if name == "deepspeed" else 4, "ascend-910b" if name == "mindspeed-llm" else "h100-sxm"
    case = make_case(
        "llama3-8b", cluster_for(device, num_devices=2 * tp), global_batch_sequences=16, sequence_tokens=2048, framework=name
    )
    one = there.normal(case, Layout(tensor_parallel=tp, sequence_parallel=tp > 1, data_parallel=2, optimizer_shards=2,
                                    num_microbatches=8))
    alone = there.normal(case, replace(one, data_parallel=1, optimizer_shards=1, gradient_shards=1, parameter_shards=1,
                                       num_microbatches=16, overlap=replace(one.overlap, parameter_gather=False)))
    half = replace(case, cluster=cluster_for(device, num_devices=tp))
    reading = read_back(there, case, configuration(there.write(case, one)))
    assert {key for key in ONE_REPLICA[name] if reading.source.value(key) is not None} == ONE_REPLICA[name]
    edited = edit(there, reading, half, alone)
    assert not {each.key for each in edited.edits} & ONE_REPLICA[name]
    assert [message.id for message in edited.messages] in ([], ["edit.devices"])


def test_a_switch_that_one_replica_may_not_have_is_taken_out():
    """Two instances of the distributed optimizer need two replicas."""
    case = make_case("llama3-8b", cluster_for("h100-sxm", num_devices=16), global_batch_sequences=16, sequence_tokens=2048)
    there = framework("megatron")
    one = there.normal(case, Layout(tensor_parallel=4, data_parallel=4, optimizer_shards=2, num_microbatches=4))
    reading = read_back(there, case, configuration(there.write(case, one)))
    alone = replace(one, data_parallel=1, optimizer_shards=1, num_microbatches=16)
    keys = {each.key for each in edit(there, reading, replace(case, cluster=cluster_for("h100-sxm", num_devices=4)), alone).edits}
    assert "--num-distributed-optimizer-instances" in keys
    assert "--use-distributed-optimizer" not in keys


@pytest.mark.parametrize("name", ["megatron", "nanotron", "torchtitan"])
def test_the_layout_that_is_there_changes_nothing(name):
    there, case, one, _ = plan_pair(name, 3)
    edited = edit(there, read_back(there, case, configuration(there.write(case, one))), case, one)
    assert (edited.files, edited.edits, edited.diff, edited.messages) == ((), (), "", ())


def test_a_value_that_stands_there_in_another_spelling_stays():
    case = make_case("llama3-8b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=16, sequence_tokens=2048)
    one = Layout(tensor_parallel=2, data_parallel=4, num_microbatches=4)
    two = replace(one, tensor_parallel=4, data_parallel=2, num_microbatches=8)
    there = framework("megatron")
    script = (
        "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --bf16 --seq-length 2048 --micro-batch-size 1 "
        "--global-batch-size 16 --tensor-model-parallel-size 04 --overlap-grad-reduce\n"
    )
    written = replace(read_back(there, case, [File(path="train.sh", text=script)]), layout=one)  # as if 2 had been read
    assert "--tensor-model-parallel-size" not in {each.key for each in edit(there, written, case, two).edits}
    other = read_back(there, case, [File(path="train.sh", text=script.replace(" 04 ", " 2 "))])
    assert "--tensor-model-parallel-size" in {each.key for each in edit(there, other, case, two).edits}


@pytest.mark.parametrize("name", ["megatron", "deepspeed", "torchtitan"])
def test_fewer_devices_are_never_silent(name):
    there, case, one, two = plan_pair(name, 11, same_world=False)
    edited = edit(there, read_back(there, case, configuration(there.write(case, one))), case, two)
    assert [each.id for each in edited.messages] == ["edit.devices"]
    assert str(two.world) in str(edited.messages[0])


def test_files_without_a_layout_are_refused():
    there, case, one, _ = plan_pair("megatron", 3)
    reading = replace(read_back(there, case, configuration(there.write(case, one))), layout=None)
    with pytest.raises(InputError, match="determine no layout"):
        edit(there, reading, case, one)


def test_what_the_framework_cannot_run_is_refused():
    there, case, one, _ = plan_pair("megatron", 3)
    reading = read_back(there, case, configuration(there.write(case, one)))
    with pytest.raises(InputError):
        edit(there, reading, case, replace(one, tensor_parallel=3, data_parallel=one.world))


def test_what_a_change_means_for_a_run_that_resumes():
    one = Layout(data_parallel=8, microbatch_sequences=1, num_microbatches=4)
    assert changed_knobs(one, one) == () and meaning(CUT, ()).resume == "same checkpoint"
    smaller = replace(one, data_parallel=4, num_microbatches=8)
    assert changed_knobs(one, smaller) == ("dp", "mb")
    assert meaning(SHARDED, ("dp", "mb")).resume == "reshard"
    assert meaning(CUT, ("mb", "tp")).resume == "convert"
    assert meaning(CUT, ("mb",)).resume == meaning(SHARDED, ("mb", "overlap")).resume == "same checkpoint"


COMMENTED = '{\n  // the batch\n  "mb": 1, // small\n\t"zero": {"stage": 1},\n  // last\n  "clip": 1.0 // as is\n}\n'


def test_json_comments_survive_an_edit():
    document, line = parse_json_with_comments(COMMENTED)
    assert line == 2 and document.text == COMMENTED
    assert document.changed({"mb": 4, "zero.stage": 2}) == COMMENTED.replace('"mb": 1', '"mb": 4').replace('e": 1}', 'e": 2}')
    assert document.changed({"new": 3}) == COMMENTED.replace("1.0 // as is\n", '1.0, // as is\n  "new": 3\n')
    assert document.changed({"zero": None}) == COMMENTED.replace('\t"zero": {"stage": 1},\n', "")
    gone = document.changed({"clip": None})
    assert "// last" in gone and parse_json_with_comments(gone)[0].values == {"mb": 1, "zero": {"stage": 1}}


@pytest.mark.parametrize("text", [
    r'{"a": "\ud83d\ude00", "b": 1}', r'{"a\ud83d": 1, "b": 1}', '{"a": "\x7f\u2028", "b": 1}', r'{"a": "\\ud83d", "b": 1}',
])
def test_json_that_yaml_does_not_know_is_edited_all_the_same(text):
    document = parse_tree(text, is_json=True)
    assert document.settings()["b"].value == 1
    assert document.changed({"b": 2}) == text.replace(": 1}", ": 2}")


def test_json_that_yaml_cannot_place_is_read_and_not_edited():
    document = parse_tree('{"%s": 1, "b": 1}' % ("k" * 2000), is_json=True)
    assert document.settings()["b"].value == 1
    with pytest.raises(InputError, match="cannot be set in place"):
        document.changed({"b": 2})


def test_deep_json_is_one_line():
    with pytest.raises(InputError, match="nested too deeply"):
        parse_tree('{"a":' * 400 + "1" + "}" * 400, is_json=True)


ALIASED = "parallel: {dp: &dp 8}\ndata: [[*dp, 1], [*dp, 1]]\nother: *dp\n"


def test_only_followers_follow_an_alias():
    document = parse_tree(ALIASED)
    with pytest.raises(InputError, match=r"shares its value with (data|other)"):
        document.changed({"parallel.dp": 4})
    followed = replace(document, followers=frozenset({"data"}))
    with pytest.raises(InputError, match="shares its value with other"):
        followed.changed({"parallel.dp": 4})
    assert followed.changed({"parallel.dp": 4, "other": 4}) == ALIASED.replace("8", "4")
    assert parse_tree(followed.changed({"parallel.dp": 4, "other": 2})).values["other"] == 2


def test_mindformers_data_follow_its_data_parallelism():
    assert "parallel.dataset_strategy" in framework("mindformers@graph").followers


def test_the_last_key_of_a_section_leaves_the_comments_behind_it():
    text = "a:\n  b: 1  # one\n  # below\n# after\nc: 2\n"
    assert parse_tree(text).changed({"a.b": None}) == "a:\n  {}  # one\n  # below\n# after\nc: 2\n"


@pytest.mark.parametrize("text", [
    "A=(" * 20_000, "a=(b c)(" * 5_000, "[[ a =~ (" * 5_000,
    "A=({1..9000})\n" + "".join(f"B{n}=(${{A[@]}})\n" for n in range(50)) + "torchrun x.py\n",
    "f() { A=$A$A; f $A $A; }\nA=1\nf 1\ntorchrun x.py\n",
])
def test_scripts_without_bound_are_refused(text):
    with pytest.raises(InputError):
        parse_shell(text)


def test_surrogates_are_no_script():
    with pytest.raises(InputError, match="UTF-8"):
        parse_shell("torchrun x.py --a \ud83d\n")


def test_empty_parts_of_torchtitan_and_lists_of_accelerate():
    there, case, one, _ = plan_pair("torchtitan", 3)
    files = [
        replace(file, text=file.text.replace("[parallelism]", "[parallelism]\nmodule_fqns_per_model_part = []"))
        for file in configuration(there.write(case, one))
    ]
    read_back(there, case, files)
    there = framework("accelerate")
    text = "distributed_type: FSDP\nnum_processes: [8]\nfsdp_config: {fsdp_auto_wrap_policy: {a: 1}}\n"
    reading = there.read([File(path="a.yaml", text=text)])
    assert [finding for check in there.checks for finding in check.findings(reading, None)]

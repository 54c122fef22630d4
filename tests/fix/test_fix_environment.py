"""Virtual memory is switched on where the launch says it: merged into what stands there, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.documents.launch import parse_launch
from meshwright.documents.shell_variable import set_variable
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.environment_edits import merged, variable_of, virtual_memory, with_variables

NAME = "PYTORCH_CUDA_ALLOC_CONF"
LAUNCH = 'torchrun --nproc_per_node 8 \\\n  pretrain_gpt.py --tensor-model-parallel-size 2 \\\n  --micro-batch-size 1 "$@"\n'
SCRIPTS = {
    "none": ("#!/bin/bash\n#SBATCH -N 2\n" + LAUNCH, None),
    "others": ("#!/bin/bash\nexport NCCL_DEBUG=WARN   # quiet\nX=1\n\n" + LAUNCH, None),
    "set": (f"export {NAME}=max_split_size_mb:512   # fragments\n" + LAUNCH, "max_split_size_mb:512"),
    "quoted": (f'export {NAME}="max_split_size_mb:512"\n' + LAUNCH, "max_split_size_mb:512"),
    "default": (f"export {NAME}=${{{NAME}:-max_split_size_mb:512}}\n" + LAUNCH, "max_split_size_mb:512"),
    "through": (f"CONF=max_split_size_mb:512\nexport {NAME}=$CONF\n" + LAUNCH, "max_split_size_mb:512"),
    "in front": (f"{NAME}=max_split_size_mb:512 {LAUNCH}", "max_split_size_mb:512"),
    "twice": (f"export {NAME}=garbage_collection_threshold:0.8\nexport {NAME}=max_split_size_mb:512\n" + LAUNCH,
              "max_split_size_mb:512"),
    "off": (f"export {NAME}=expandable_segments:False\n" + LAUNCH, "expandable_segments:False"),
    "function": ("run() {\n  " + LAUNCH.replace("\n  ", "\n    ") + "}\nexport A=1\nrun\n", None),
    "branch": ('if [ "$1" = x ]; then\n  export A=1\nfi\n' + LAUNCH, None),
    "windows": (("export A=1\n" + LAUNCH).replace("\n", "\r\n"), None),
}


def seen(text):
    """Words and environment of a launch."""
    command = parse_launch(text).shell.launch.command
    return [word.text for word in command.words], {name: word and word.text for name, word in command.environment.items()}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_only_the_variable_changes_and_its_options_are_kept(kind):
    text, before = SCRIPTS[kind]
    wanted = merged(before or "", "expandable_segments")
    after = set_variable(text, NAME, wanted)
    words, environment = seen(text)
    assert environment.get(NAME) == before
    assert seen(after) == (words, {**environment, NAME: wanted})
    assert "expandable_segments:True" in wanted
    assert (before or "").replace("expandable_segments:False", "") in wanted
    kept = [line for line in text.splitlines() if NAME not in line and "CONF" not in line]
    assert [line for line in after.splitlines() if line in kept] == kept, "all other lines stand as they were"
    assert after.count("\r\n") == after.count("\n") * ("\r\n" in text)


@pytest.mark.parametrize("kind", SCRIPTS)
def test_it_is_set_once(kind):
    text, _ = SCRIPTS[kind]
    after = set_variable(text, NAME, "expandable_segments:True")
    assert after.count(f"{NAME}=") == max(1, text.count(f"{NAME}=")), "a second export would hide that the first is void"
    assert set_variable(after, NAME, "expandable_segments:True") == after


@pytest.mark.parametrize("text", ["", "echo hello\n", "TP=8\n"])
def test_a_script_that_launches_nothing_cannot_be_changed(text):
    with pytest.raises(InputError):
        set_variable(text, NAME, "1")


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["max_split_size_mb:512", "expandable_segments:False", "expandable_segments:True", "pinned_use:1"]))
)
def test_merging_keeps_other_options_and_is_done_once(parts):
    value = merged(",".join(parts), "expandable_segments")
    assert "expandable_segments:True" in value.split(",")
    assert "expandable_segments:False" not in value
    assert [part for part in value.split(",") if "expandable" not in part] == [part for part in parts if "expandable" not in part]
    assert merged(value, "expandable_segments") == value


def reading(name, text, path="train.sh"):
    return framework(name).read([File(path=path, text=text)])


def megatron(head="", more=""):
    return reading("megatron", f"{head}torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 {more}\n")


def test_megatron_scripts_get_the_variable_of_pytorch():
    memory = virtual_memory(framework("megatron"), megatron(), "hopper")
    assert (memory.state, [(edit.name, edit.after) for edit in memory.edits]) == ("edit", [(NAME, "expandable_segments:True")])
    (file,) = with_variables([File(path="train.sh", text=megatron().source.documents[0].text)], memory.edits)
    assert f"export {NAME}=expandable_segments:True\n" in file.text


def test_user_buffers_exclude_it():
    memory = virtual_memory(framework("megatron"), megatron(more="--use-nccl-ub"), "hopper")
    assert (memory.state, memory.edits) == ("excluded", ())
    assert "--use-nccl-ub" in str(memory.messages[0])


def test_cuda_graphs_need_one_more_variable():
    memory = virtual_memory(framework("megatron"), megatron(more="--cuda-graph-impl local"), "hopper")
    assert [(edit.name, edit.after) for edit in memory.edits][1] == ("NCCL_GRAPH_REGISTER", "0")
    there = megatron(head="export NCCL_GRAPH_REGISTER=0\n", more="--cuda-graph-impl local")
    assert len(virtual_memory(framework("megatron"), there, "hopper").edits) == 1
    off = virtual_memory(framework("megatron"), megatron(more="--cuda-graph-impl none"), "hopper")
    assert len(off.edits) == 1


def test_what_is_on_is_not_edited_and_what_the_machine_says_is_left_to_its_owner():
    on = megatron(head=f"export {NAME}=expandable_segments:True\n")
    assert virtual_memory(framework("megatron"), on, "hopper").state == "on"
    unknown = megatron(head=f"export {NAME}=$(cat conf)\n")
    assert virtual_memory(framework("megatron"), unknown, "hopper").state == "by hand"


@pytest.mark.parametrize(
    ("name", "family", "variable"),
    [("megatron", "hopper", NAME), ("megatron", "ascend", "PYTORCH_NPU_ALLOC_CONF"), ("mindformers", "ascend", "MS_ALLOC_CONF"),
     ("mindspeed-core-ms", "ascend", "MS_ALLOC_CONF"), ("mindspeed-llm", "ascend", "PYTORCH_NPU_ALLOC_CONF"),
     ("torchtitan", "blackwell", "PYTORCH_ALLOC_CONF"), ("deepspeed", "ampere", NAME)],
)
def test_each_allocator_reads_its_own_variable(name, family, variable):
    assert variable_of(framework(name), None, family) == variable
    memory = virtual_memory(framework(name), None, family)
    assert memory.state == "by hand"
    assert memory.edits[0].after == ("enable_vmm:True" if variable == "MS_ALLOC_CONF" else "expandable_segments:True")


def test_the_newer_name_is_taken_where_it_is_set():
    memory = virtual_memory(framework("megatron"), megatron(head="export PYTORCH_ALLOC_CONF=pinned_use:1\n"), "hopper")
    assert [(edit.name, edit.after) for edit in memory.edits] == [("PYTORCH_ALLOC_CONF", "pinned_use:1,expandable_segments:True")]


def test_chatlearn_has_a_key_for_it():
    text = (
        "runtime_args:\n  train_backend: megatron\nmodels:\n  policy_trainer:\n    num_gpu: 8\n    use_expandable_segments: false\n"
    )
    memory = virtual_memory(framework("chatlearn"), reading("chatlearn", text, "grpo.yaml"), "hopper")
    (edit,) = memory.edits
    assert (memory.state, edit.name, edit.before, edit.after, edit.file, edit.line) == (
        "edit", "models.policy_trainer.use_expandable_segments", False, True, "grpo.yaml", 6,
    )
    on = reading("chatlearn", text.replace("false", "true"), "grpo.yaml")
    assert virtual_memory(framework("chatlearn"), on, "hopper").state == "on"


def test_a_configuration_that_starts_nothing_says_where_to_set_it():
    text = "[training]\nlocal_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 2\n"
    memory = virtual_memory(framework("torchtitan"), reading("torchtitan", text, "job.toml"), "hopper")
    assert memory.state == "by hand"
    assert "none of the files starts the processes" in str(memory.messages[0])


def test_rocm_is_told_of_its_older_releases():
    assert "ROCm" in str(virtual_memory(framework("megatron"), megatron(), "cdna3").messages[0])

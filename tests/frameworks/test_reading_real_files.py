"""What real launch scripts do, in our own minimal words: here-documents, ``read``, blanks, files that are named but not given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.api.called import positional
from meshwright.catalog import cluster_for
from meshwright.check import Question, check
from meshwright.cli import main
from meshwright.documents.naming import ASKED_FOR
from meshwright.documents.shell import parse_shell
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given

PARALLEL = "--num-layers 8 --micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size"


def read(name, path, text, **given):
    return framework(name).read([File(path=path, text=text)], given=Given(**given))


def judged(name, path, text, **given):
    return check(Question(framework=framework(name), reading=read(name, path, text, **given))).findings


def test_a_job_in_a_here_document_is_launched():
    script = f"sbatch <<EOF\n#SBATCH --nodes=2\nsrun bash -x -c 'python pretrain_gpt.py {PARALLEL} 2'\nEOF\n"
    assert read("megatron", "a.sh", script, num_devices=16).layout.tensor_parallel == 2


def test_read_splits_a_here_string():
    script = 'for C in "2,4"; do\nIFS="," read -r TP PP <<< "$C"\npython pretrain_gpt.py --tp $TP --pp=$PP\ndone\n'
    assert [word.text for word in parse_shell(script).launch.arguments] == ["--tp", "2", "--pp=4"]
    rest = parse_shell('read A B <<< "1 2 3"\npython x.py --a "$A" --b "$B"\n').launch.arguments
    assert [word.text for word in rest] == ["--a", "1", "--b", "2 3"]
    unknown = parse_shell('read A B <<< "$WHAT"\npython x.py --a "$A"\n').launch.arguments
    assert not unknown[1].known


def test_unknown_values_say_what_they_hang_on_and_how_to_give_it():
    script = f"TP=${{3}}\ntorchrun --nproc_per_node 8 pretrain_gpt.py {PARALLEL} $TP --pipeline-model-parallel-size $PP\n"
    messages = [str(each) for each in read("megatron", "a.sh", script, num_devices=7).messages if each.id == "setting.unknown"]
    assert len(messages) == 2
    assert "argument 3 of the script" in messages[0] and "--arguments" in messages[0]
    assert "$PP" in messages[1] and '--arguments "PP=..."' in messages[1]


def test_what_a_branch_decides_is_not_asked_for_by_its_name():
    script = (
        f"if [ $1 = big ]; then\nN=4\nelse\nN=2\nfi\ntorchrun --nproc_per_node 8 pretrain_gpt.py {PARALLEL} $N --seq-length $2\n"
    )
    found = next(each for each in read("megatron", "a.sh", script, num_devices=8).messages if each.id == "setting.unknown")
    assert "$N, which the script decides" in str(found) and '--arguments "..."' in str(found)
    assert read("megatron", "a.sh", positional("big 128") + script, num_devices=8).layout.tensor_parallel == 4


def test_nothing_follows_from_a_degree_that_is_not_known():
    script = f"torchrun --nproc_per_node 7 pretrain_gpt.py {PARALLEL} $TP\n"
    ids = [each.id for each in read("megatron", "a.sh", script, num_devices=7).messages]
    assert "setting.unknown" in ids and not {"import.world", "import.microbatches"} & set(ids)


def test_arguments_are_variables_and_words():
    script = f"torchrun --nproc_per_node $GPUS pretrain_gpt.py {PARALLEL} $1\n"
    reading = read("megatron", "a.sh", positional("GPUS=8 4") + script, num_devices=8)
    assert reading.layout.tensor_parallel == 4
    assert reading.source.devices_per_node == 8
    assert positional("8 A=1") == "set -- 8 A=1; "


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("torchtitan", "CONFIG_FILE=${CONFIG_FILE:-a.toml}\ntorchrun -m torchtitan.train --job.config_file $CONFIG_FILE\n"),
        ("chatlearn", "python chatlearn/entrypoint.py grpo --config-file a.yaml runtime_args.num_episode=2\n"),
        ("nanotron", "torchrun --nproc_per_node=8 run_train.py --config-file a.yaml\n"),
        ("accelerate", "accelerate launch --config_file a.yaml train.py --per_device_train_batch_size 2\n"),
        ("llama-factory-megatron", "USE_MEGATRON_BRIDGE=1 llamafactory-cli train a.yaml cutoff_len=1024\n"),
        ("nemo-rl-megatron", "uv run examples/run_grpo.py --config a.yaml cluster.num_nodes=2\n"),
        ("ms-swift-megatron", "NPROC_PER_NODE=8 megatron sft a.yaml --lr 1e-5\n"),
        ("llama-factory-hf", "FORCE_TORCHRUN=1 llamafactory-cli train a.yaml cutoff_len=1024\n"),
        ("mindformers", "msrun --worker_num 8 run_mindformer.py --config a.yaml --run_mode train\n"),
        ("deepspeed", "deepspeed train.py --deepspeed --deepspeed_config $1\n"),
        ("picotron", 'torchrun train.py --config "$HERE/a.json"\n'),
        ("mindspeed-core-ms", 'msrun --worker_num=8 pretrain_gpt.py --config_path "$HERE/a.yaml"\n'),
        ("bridge", 'torchrun --nproc_per_node=8 "$HERE/train.py" model.tensor_model_parallel_size=2\n'),
    ],
)
def test_a_named_file_that_is_not_given_is_asked_for(name, script):
    reading = read(name, "a.sh", script, num_devices=8)
    assert reading.layout is None
    assert reading.messages[0].id in ASKED_FOR
    named = ("--config names a.json", "--config_path names a.yaml", "the launch starts train.py")
    assert "$HERE" not in script or reading.messages[0].words.startswith(named)
    assert reading.said.global_batch_sequences is None  # no default is passed off as theirs
    assert {each.message.id.partition(".")[0] for each in judged(name, "a.sh", script, num_devices=8)} <= {"import", "shell"}


def test_a_program_that_holds_the_task_is_asked_for_and_nothing_is_judged_without():
    """Bridge's own launch of adapters: without its program it is no pretraining; told the task, the words are judged."""
    given = make_case("llama3-8b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=64, sequence_tokens=4096)
    script = 'torchrun --nproc_per_node=8 "$HERE/train.py" {words}\n'
    words = " ".join(f"model.{each}_parallel_size=1" for each in ("tensor_model", "pipeline_model", "context"))
    words += " train.global_batch_size=64 train.micro_batch_size=1 model.seq_length=4096"
    file = File(path="launch.sh", text=script.format(words=words))
    adapter = framework("bridge")
    alone = adapter.read([file], given=Given(num_devices=8, model=given.model))
    assert (alone.layout, [each.id for each in alone.messages]) == (None, ["import.program-file"])
    assert "train.py" in alone.messages[0].words
    told = adapter.read([file], given=Given(num_devices=8, model=given.model, task="lora"))
    assert told.layout is not None
    assert told.messages[0].id == "import.program-file"
    recipe = replace(file, text=script.format(words=f"--recipe llama3_8b_pretrain_config {words}"))
    assert adapter.read([recipe], given=Given(num_devices=8, model=given.model)).layout is not None


def test_a_file_that_the_script_writes_itself_is_there():
    script = 'cat > ds.json <<EOF\n{"train_batch_size": 8}\nEOF\ndeepspeed train.py --deepspeed_config ds.json\n'
    assert "import.config-file" not in {each.id for each in read("deepspeed", "a.sh", script, num_devices=8).messages}


@pytest.mark.parametrize(("program", "severity"), [("pretrain_gpt.py", "error"), ("examples/mine/train.py", "advice")])
def test_a_program_of_its_own_may_add_flags(program, severity):
    script = f"torchrun --nproc_per_node 8 {program} {PARALLEL} 1 --encoder-of-mine 3\n"
    found = [each for each in judged("megatron", "a.sh", script) if each.message.id == "megatron.unknown-key"]
    assert [each.severity for each in found] == [severity]


def test_a_configuration_module_may_add_sections():
    for module, severity in (('custom_config_module = "mine.config"', "advice"), ("print_config = true", "error")):
        text = f"[job]\n{module}\n[mine]\nx = 1\n"
        found = judged("torchtitan@0.2", "a.toml", text, num_devices=8)
        assert [each.severity for each in found if each.message.id == "torchtitan.unknown-key"] == [severity]


def test_blanks_of_a_template_are_no_errors():
    script = f'LOAD="your ckpt path"\ntorchrun --nproc_per_node 8 pretrain_gpt.py {PARALLEL} 1 --load $LOAD\n'
    found = {each.message.id: each.severity for each in judged("megatron", "a.sh", script)}
    assert found["setting.blank"] == "warning"
    assert "setting.type" not in found


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("sbatch --nodes 2 train.slurm\n", "starts train.slurm"),
        ("A=1 ./run_train.sh 8\n", "starts ./run_train.sh"),
        ("source a.sh\n", "it reads a.sh"),
        ("TP=1\nPP=2\n", "it only sets variables"),
    ],
)
def test_a_script_without_a_launch_says_what_to_give(script, hint):
    with pytest.raises(InputError, match="launches no training") as raised:
        _ = parse_shell(script).launch
    assert hint in str(raised.value)


def test_auto_is_one_message_that_says_who_knows():
    text = '{"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto"}'
    messages = read("deepspeed", "a.json", text, num_devices=8).messages
    assert [each.id for each in messages] == ["import.batch-auto"]


def test_what_grows_is_no_error_beside_the_reason():
    script = f"torchrun --nproc_per_node 8 pretrain_gpt.py {PARALLEL} 16 --rampup-batch-size 8 8 100\n"
    found = {each.message.id: each.severity for each in judged("megatron", "a.sh", script, num_devices=8)}
    assert found["megatron.rampup"] == "warning" and found["import.world"] == "error"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("bash train.sh --a 1\n", 'launches train.sh: give that file, with --arguments "..." as it is called'),
        ("python -m verl.trainer.main a.b=1\n", "launches verl.trainer.main: is --from right?"),
    ],
)
def test_files_without_a_key_say_what_they_launch(tmp_path, capsys, script, words):
    path = tmp_path / "a.sh"
    path.write_text(script)
    assert main(["import", str(path), "--from", "megatron"]) == 2
    assert words in capsys.readouterr().err


def test_a_fork_is_known_by_its_flag():
    script = f"deepspeed --num_gpus 8 pretrain_gpt.py {PARALLEL} 1 --of-the-fork 1"
    for more, severity in (("", "error"), (" --tokenizer-name-or-path t", "advice")):
        found = judged("megatron-deepspeed", "a.sh", f"{script}{more}\n")
        assert {each.severity for each in found if each.message.id.endswith("unknown-key")} == {severity}


NANOTRON = ("parallelism: {dp: 2, tp: 2, pp: 1}\n"
            "tokens: {micro_batch_size: 1, micro_batch_size: 2, batch_accumulation_per_replica: 4}\n")


@pytest.mark.parametrize("text", [NANOTRON, NANOTRON.replace("{", "\n  ").replace(", ", "\n  ").replace("}", "")])
def test_of_a_key_that_stands_twice_the_last_one_counts_and_is_changed(text):
    """As PyYAML has it, by which most frameworks read; nanotron's config_qwen_with_moe.yaml has moe_config twice."""
    reading = read("nanotron", "a.yaml", text, num_devices=4)
    assert reading.source.value("tokens.micro_batch_size") == 2
    assert [each.id for each in reading.source.remarks] == ["yaml.twice"]
    (said,) = [each for each in judged("nanotron", "a.yaml", text, num_devices=4) if each.message.id == "yaml.twice"]
    assert said.severity == "warning"
    (document,) = reading.source.documents
    changed = document.changed({"tokens.micro_batch_size": 4})
    assert "micro_batch_size: 1" in changed
    assert read("nanotron", "a.yaml", changed, num_devices=4).source.value("tokens.micro_batch_size") == 4


def test_omegaconf_refuses_a_key_that_stands_twice():
    with pytest.raises(InputError, match="found duplicate key packing"):
        read("chatlearn", "a.yaml", "models:\n  policy_trainer:\n    packing: true\n    packing: false\n")


@pytest.mark.parametrize("script", [
    "torchrun --nnodes 1 --nproc_per_node 8 pretrain_t5.py --encoder-num-layers 12 --micro-batch-size 1 --bf16",
    "torchrun --nnodes 1 --nproc_per_node 8 a.py --decoder-num-layers 12 --micro-batch-size 1 --bf16",
])
def test_an_encoder_and_a_decoder_are_refused_as_such(script):
    reading = read("megatron", "a.sh", script)
    assert reading.layout is None
    assert [each.id for each in reading.messages] == ["megatron.encoder-decoder"]


@pytest.mark.parametrize("ending", ["\\\n", "\\", "\\\\\n"])
def test_a_backslash_that_ends_a_script_is_no_error(ending):
    """``bash -n`` takes it, and Megatron-LM's train_t5_220m_distributed.sh ends with one."""
    assert not parse_shell(f"torchrun a.py --load x {ending}").remarks


@pytest.mark.parametrize("wrong", [
    ("megatron", "a.sh", "torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --num-experts 8 --bf16 "
     "--micro-batch-size 1 --global-batch-size 256 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8"),
    ("nanotron", "a.yaml", "parallelism: {dp: 2, tp: 2, pp: 2, expert_parallel_size: 8}\n"
     "tokens: {micro_batch_size: 1, batch_accumulation_per_replica: 4}\nmodel: {model_config: {num_hidden_layers: 8}}\n"),
])
def test_experts_that_do_not_fit_on_the_devices_are_wrong_without_a_model(wrong):
    """Of ep8 pp4 on 8 devices: Megatron-LM's train_mixtral_8x7b_distributed.sh as it stands, on one node."""
    assert ("error", "check.experts") in {(each.severity, each.message.id) for each in judged(*wrong, num_devices=8)}


@pytest.mark.parametrize("value", ["<some dir>", "<some dir>/output/model", "<path>"])
def test_what_documentation_leaves_to_be_filled_in_is_a_blank(value):
    """As Megatron-LM's nvlm scripts: WORKSPACE="<some dir>", and --pretrained-checkpoint ${WORKSPACE}/..."""
    script = f'WHERE="{value}"\ntorchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --load $WHERE/x {PARALLEL} 2\n'
    found = [(each.severity, each.message.id) for each in judged("megatron", "a.sh", script)]
    assert ("warning", "setting.blank") in found
    assert not {id for severity, id in found if severity == "error" and id.startswith(("shell.", "setting."))}


@pytest.mark.parametrize("flag", ["--embed-layernorm", "--pad-vocab-size-to 250880", "--kill-switch-path /x"])
def test_a_flag_of_a_fork_is_said_to_be_one(flag):
    script = f"torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --deepspeed --deepspeed_config ds.json {PARALLEL} 2 {flag}\n"
    (said,) = [each for each in judged("megatron-deepspeed", "a.sh", script) if each.message.id == "megatron-deepspeed.unknown-key"]
    assert "a key of BigScience's fork" in str(said.message)
    assert "did you mean" not in str(said.message)


def test_communication_that_is_not_there_is_not_recomputed():
    """MindFormers' select_comm_recompute without sequence parallelism."""
    text = ("use_parallel: true\nparallel_config: {data_parallel: 4, model_parallel: 2, pipeline_stage: 1, use_seq_parallel: SP}\n"
            "recompute_config: {recompute: false, select_comm_recompute: true}\n")
    for on, said in (("false", True), ("true", False)):
        found = judged("mindformers@graph", "a.yaml", text.replace("SP", on), num_devices=8)
        assert ("mindformers.select-comm" in {each.message.id for each in found}) is said

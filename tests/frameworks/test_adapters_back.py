"""Rank and places of adapters come back from the files of every framework that has keys for them, or are refused."""

from dataclasses import replace

import pytest

import meshwright as mw
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.training import Lora
from meshwright.errors import InputError
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.base import File
from meshwright.frameworks.settings import Given
from meshwright.testing import legal_plans
from meshwright.testing.plans import is_legal
from meshwright.testing.promises import read_back

ATTENTION, EVERY = ("query", "key", "value", "output"), Lora().targets
SILENT = {"accelerate", "deepspeed"}
"""Adapters are their training program's: no key of a file is for them."""
ABLE = [f"{name}@{release}" for name in frameworks() if name not in SILENT and "lora" in framework(name).features.tasks
        for release in framework(name).releases]


@pytest.mark.parametrize("words", ABLE)
def test_adapters_come_back_as_they_went_out(words):
    name, _, release = words.partition("@")
    runner, ranks = framework(words), set()
    for case, layout in legal_plans(name, 6, seed=41):
        for lora in (Lora(), Lora(rank=8), Lora(rank=64, targets=ATTENTION), Lora(rank=32, targets=(*ATTENTION[:3], "mlp"))):
            dense = not case.model.is_moe
            tuned = replace(case, training=replace(case.training, task="lora", lora=lora))
            if is_legal(runner, tuned, layout) and (dense or set(lora.targets) == set(EVERY)):
                said = read_back(runner, tuned, runner.write(tuned, layout, version=release)).said
                assert (said.task, said.lora) == ("lora", lora), layout
                ranks.add(lora.rank)
    assert {16, 8} <= ranks, "no plan had adapters"


@pytest.mark.parametrize(("words", "text", "lora"), [
    ("llama-factory-hf", "lora_target: q_proj,v_proj\n", Lora(rank=8, targets=("query", "value"))),
    ("llama-factory-hf", "lora_rank: 32\nlora_target: all\n", Lora(rank=32)),
    ("llama-factory-megatron", "lora_rank: 4\nlora_target: q_proj\n", Lora(rank=4)),
])
def test_adapters_of_own_files_are_read_as_they_are(words, text, lora, tmp_path):
    """A plan has adapters of one kind: what cannot be saved is refused in a line."""
    path = tmp_path / "train.yaml"
    path.write_text("model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
                    f"dataset: alpaca_en_demo\ncutoff_len: 2048\nbf16: true\noutput_dir: out\n{text}")
    options = {"files": [str(path)], "from_": words, "model": "llama3-8b", "device": "h100-sxm", "nodes": 1}
    taken = mw.import_(mw.ImportRequest(**options)).taken
    assert taken.case.case.training.lora == lora
    with pytest.raises(InputError, match=f"not of rank {lora.rank} on"):
        mw.import_(mw.ImportRequest(**options, save=tmp_path / "plan.yaml"))


@pytest.mark.parametrize(("words", "name", "text"), [
    ("llama-factory-hf", "train.yaml", "finetuning_type: lora\nlora_target: qproj,v_projj\n"),
    ("ms-swift-megatron", "train.sh", "megatron sft --tuner_type lora --target_modules qproj v_projj\n"),
    ("mindspeed-llm", "train.sh", "torchrun posttrain_gpt.py --stage sft --lora-r 8 --lora-target-modules qproj v_projj\n"),
])
def test_modules_of_no_known_name_are_said(words, name, text):
    """They were read as all modules without a word; a word for all is none of them."""
    for told, said in ((text, 1), (text.replace("qproj", "q_proj" if name == "train.yaml" else "linear_qkv"), 0)):
        reading = framework(words).read([File(path=name, text=told)], given=Given(num_devices=8))
        found = [each.words for each in reading.messages if each.id == "import.adapters"]
        assert len(found) == said
        assert all("qproj" in each and "none of" in each for each in found)


def test_a_back_end_with_adapters_everywhere_refuses_others():
    case = make_case("llama3-8b", cluster_for("h100-sxm", nodes=1), global_batch_sequences=8, sequence_tokens=2048, task="lora",
                     framework="llama-factory-megatron")
    runner, found = framework("llama-factory-megatron"), []
    for lora in (Lora(), Lora(targets=ATTENTION)):
        tuned = replace(case, training=replace(case.training, lora=lora))
        found.append([each.id for each in runner.limits and runner.check(tuned, mw.Layout(data_parallel=8, optimizer_shards=8))
                      if each.id.endswith(".adapters")])
    assert found == [[], ["llama-factory-megatron.adapters"]]

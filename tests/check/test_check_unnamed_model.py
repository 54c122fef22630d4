"""Files whose own figures make their model are judged like files whose model is named."""

from __future__ import annotations

import pytest

import meshwright as mw
from meshwright.errors import InputError

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")

SCRIPT = """\
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \\
  --num-layers 44 --hidden-size 5120 --num-attention-heads 40 --ffn-hidden-size 13824 --swiglu {vocabulary} \\
  --untie-embeddings-and-output-weights --position-embedding-type rope --normalization RMSNorm --disable-bias-linear \\
  --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 512 --bf16 \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --transformer-impl transformer_engine
"""


@pytest.fixture
def script(tmp_path):
    def write(vocabulary="--vocab-size 32000"):
        path = tmp_path / "train.sh"
        path.write_text(SCRIPT.format(vocabulary=vocabulary), encoding="utf-8")
        return [str(path)]

    return write


def checked(files, **options):
    return mw.check(mw.CheckRequest(files=files, **{"device": "h100-sxm", **options})).checked


@pytest.mark.parametrize(("name", "model", "cluster", "layout"), [
    ("megatron", "llama3-8b", {"device": "h100-sxm", "nodes": 2}, {"tp": 2, "pp": 2}),
    ("nanotron", "llama3-8b", {"device": "h100-sxm", "nodes": 2}, {"tp": 2, "pp": 2}),
    ("mindspeed-core-ms", "pangu-38b", {"device": "ascend-910b", "nodes": 16}, {"tp": 8, "pp": 4}),
])
def test_files_of_a_known_model_are_judged_as_if_it_were_named(name, model, cluster, layout, tmp_path):
    """Without ``--model`` nothing of memory and speed was said, of files that hold every figure of it."""
    pins = [f"{key}={value}" for key, value in layout.items()]
    mw.plan(mw.PlanRequest(
        model=model, **cluster, framework=name, global_batch=256, sequence=4096, pin=pins, save=str(tmp_path / "plan")
    ))
    files = [str(tmp_path / "plan")]
    alone, named = checked(files, **cluster, from_=name), checked(files, **cluster, from_=name, model=model)
    assert alone.estimate is not None
    assert alone.estimate.step_s == named.estimate.step_s
    assert alone.estimate.memory_reserved_bytes == named.estimate.memory_reserved_bytes


def test_a_model_of_nobodys_catalogue_is_built_and_does_not_fit(script):
    """A script that runs out of memory was ``ok``."""
    found = {each.message.id: each for each in checked(script()).findings}
    assert found["check.memory"].severity == "error"
    assert found["import.model-built"].severity == "advice"
    assert "14.3B" in str(found["import.model-built"].message)


def test_what_the_figures_lack_is_said(script):
    files = script(vocabulary="")
    assert any("lack the vocabulary: --model" in each for each in checked(files).skipped)
    with pytest.raises(InputError, match="lack the vocabulary"):
        mw.fix(mw.FixRequest(files=files, from_="megatron", device="h100-sxm"))


def test_what_does_not_fit_is_mended_without_a_model(script):
    fixed = mw.fix(mw.FixRequest(files=script(), from_="megatron", device="h100-sxm"))
    assert fixed.to_json()["changes"]


def test_faults_of_flags_and_of_files_are_told_as_ever(script):
    """The model that the flags do not name was asked for, wherever anything else was wrong."""
    with pytest.raises(InputError) as told:
        checked(script(), nodes=2, devices=12)
    assert [str(each) for each in told.value.messages] == ["devices=12 is not nodes=2 times 8 devices per node"]
    odd = checked(script("--vocab-size 32000 --group-query-attention --num-query-groups 7"))
    assert any("num_key_value_heads=7 does not divide num_heads=40" in each for each in odd.skipped)

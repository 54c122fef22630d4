"""Faults that are planted together are said together: a line for each, in bounded length, without words of Python."""

from __future__ import annotations

import datetime
import re

import pytest

from meshwright.errors import ALIKE, FIRST, Message, lines
from meshwright.text import kind, plain, shown

CASE = ["llama3-8b", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "32", "--sequence", "2048"]
SCRIPT = "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1\n"
COLUMNS = "id,framework,model,gpu,n_gpus,seq,gbs,tp,pp,step_time_s"
PLAN = "meshwright_plan: 1\nrequest: {model: llama9, device: h1000, nodes: 1, global_batch: 32, sequence: 2048}\nlayout: tp8 foo\n"
SOUND = PLAN.replace("llama9", "llama3-8b").replace("h1000", "h100-sxm").replace("tp8 foo", "tp2")
FILES = {
    "bad.json": "{", "bad.yaml": "a: [", "train.sh": SCRIPT, "plan.yaml": PLAN,
    "odd0.sh": SCRIPT.replace("--micro", "--global-batch-size 1e3 --micro"),
    "odd1.sh": SCRIPT.replace("size 2", "size two").replace("--micro", "--global-batch-size 64 --micro"), "sound.yaml": SOUND,
    "nodes.sh": SCRIPT.replace("--nnodes 1", "--nnodes 0"),
    "request.yaml": "modle: llama3-8b\nnodes: 0\nsequence: [1, 2]\npin: {tq: 3}\nglobal_batch: 2024-01-01\ndevice: h1000\n",
    "rows.csv": f"{COLUMNS}\n" + "".join(f"r{n},megatron,llama3-8b,h100-sxm,8,4096,x{n},1,1,1\n" for n in range(9)),
    "columns.csv": "id,framwork,model,gpu,n_gpus,seq,gbs,gbs,tp,pp\n",
    "cluster.yaml": "clusters: {mine: {like: dgx-h100, device: h1000, nodes: 0, num_devices: 8, colour: red, pod_devices: x}}\n",
    "model.yaml": "models: {mine: {like: llama3-8b, hidden: 0, layers: x, mlp: {width: 0}, colour: red}}\n",
}
PLANTED = [
    ("plan nomodel --device h1000 --nodes 0 --global-batch x --precision bf17 --optimizer adamv --pin tq=1",
     ["unknown model 'nomodel'", "unknown device 'h1000'; did you mean h100", "--nodes: 0", "--global-batch: 'x'", "'bf17'",
      "'adamv'", "unknown knob 'tq'", "--sequence is missing"]),
    ("plan CASE --max-memory-ratio 7 --compare foo8 --save /dev/null/x --framework megatrom",
     ["--max-memory-ratio", "--compare: unknown word 'foo8'", "/dev/null", "unknown framework 'megatrom'; did you mean megatron"]),
    ("plan --request request.yaml --top 0",
     ["--top: 0", "unknown key 'modle'; did you mean model", "request.yaml: nodes: 0", "request.yaml: sequence: [1, 2] is a list",
      "request.yaml: pin: unknown knob 'tq'", "request.yaml: global_batch: 2024-01-01 is a date", "request.yaml: device: unknown"]),
    ("estimate llama9 --device h100-sxm --nodes 1 --global-batch 32 --sequence 2k --calibration x --layout",
     ["unknown model 'llama9'", "unknown calibration 'x'; known: none, shipped", "--layout: unknown word 'foo'",
      "--layout: tp x cp x pp x dp = 6 x 1", "--layout: recompute=bla", "--layout: unknown schedule 'x'"]),
    ("explain CASE --implementation x --layout", ["--layout: unknown word 'foo'", "recompute=bla", "unknown implementation 'x'"]),
    ("estimate --request plan.yaml --nodes 1",
     ["plan.yaml: model: unknown", "plan.yaml: device: unknown", "plan.yaml: layout: unknown word 'foo'"]),
    ("export plan.yaml --to megatrom --onto bad.json --onto none.sh",
     ["--to: unknown framework", "bad.json: not JSON", "none.sh: no such file", "plan.yaml: model: unknown",
      "plan.yaml: layout: unknown"]),
    ("validate none.csv --calibration x --rows none/at/all.csv",
     ["none.csv: no such file", "unknown calibration", "does not exist"]),
    ("calibrate --runs none.csv --runs columns.csv --base x --out c.txt",
     ["none.csv: no such file", "column 'gbs' stands twice", "missing columns: framework; did you mean framwork?",
      "--base: unknown calibration", "does not end in .json"]),
    ("fix bad.json bad.yaml none --from megatrom --model llama9 --memory 1x",
     ["bad.json: not JSON", "bad.yaml: not YAML", "none: no such file", "--from: unknown framework", "--model: unknown",
      "--memory: '1x'"]),
    ("import bad.json bad.yaml none --from megatron --precision b",
     ["bad.json: not JSON", "bad.yaml: not YAML", "none: no", "'b'"]),
    ("check bad.json bad.yaml --from megatron --claim x --device h1000", ["bad.json", "bad.yaml", "--claim", "--device: unknown"]),
    ("fix nodes.sh --from megatron --model llama3-8b --device h100-sxm", ["nodes.sh:1: --nnodes is 0: a number of nodes from 1"]),
    *((f"{verb} odd{number}.sh{more}", [f"odd{number}.sh:1: --{key} is '{value}': a whole number is expected", said])
      for number, (key, value) in enumerate((("global-batch-size", "1e3"), ("tensor-model-parallel-size", "two")))
      for verb, more, said in (
          ("fix", " --from megatron --model llama3-8b --device h100-sxm --sequence 2k",
           ("what the files do not say is missing", "there is nothing to change")[number]),
          ("export sound.yaml --to megatron --onto", "", "there is nothing to change"))),
    ("dryrun llama9 --builder foo --global-batch 4 --sequence x --layout",
     ["'x' is not a number", "--builder: 'foo'", "unknown model 'llama9'", "--layout: unknown word 'foo'"]),
    ("plan model.yaml --cluster cluster.yaml --global-batch 8 --sequence 2k",
     ["mine.colour: is no known key", "mine.hidden: 0 is not within", "mine.layers: 'x' is not a whole number",
      "mlp.width: 0 is not",
      "clusters.mine.colour: is no known key", "pod_devices: 'x' is not a whole", "nodes: 0 is not within", "not both", "h1000"]),
]
LABEL = "tp3 pp2 dp1 foo recompute=bla schedule=x"
OF_PYTHON = re.compile(r"\b(str|int|float|bool|dict|tuple|NoneType|None|True|False|mappings?|scalars?|datetime|[A-Z]\w+Error)\b")


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize(("command", "expected"), PLANTED, ids=[" ".join(each[0].split()[:2]) for each in PLANTED])
def test_all_faults_are_said_at_once(cli, there, command, expected):
    words = [word for each in command.split() for word in (CASE if each == "CASE" else [each])]
    answer = cli(*words, *([LABEL] if words[-1] == "--layout" else []))
    assert answer.status == 2
    for line in expected:
        assert any(line in each for each in answer.lines), f"{line!r} is not in\n{answer.err}"
    assert max(map(len, answer.lines)) < 420
    assert not [each for each in answer.lines if OF_PYTHON.search(each)]


def test_a_table_without_a_row_says_why_in_the_same_words(cli, there):
    said = [cli(*verb, "rows.csv").lines for verb in (["validate"], ["calibrate", "--out", "new.json", "--runs"])]
    assert said[0] == said[1]
    assert "9 not a number of its column, as line 2 (gbs: 'x0' is not a number), line 3 (gbs: 'x1' is" in said[0][1]


def test_many_and_long_values_take_few_and_short_lines(cli, there):
    many = cli("import", *map(str, range(300)), "--from", "megatron")
    assert many.lines[FIRST] == "error: and 295 more like this"
    assert len(many.lines) == FIRST + 1
    long = cli("plan", "9" * 5001, "--task", "9" * 5001, "--pin", f"etp={'9' * 5001}", "--nodes", "9" * 5001)
    assert len([line for line in long.lines if "(5,001 characters)" in line]) == 4
    assert max(map(len, long.lines)) < 420
    assert cli("explain", *"abcdefghij" * 500).err.count("\n") == 1


VALUES = ["x\n", 10**5000, 1.5, True, None, [1] * 999, {"a": {"b": None}}, datetime.date(2024, 1, 2), b"x", {1}]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_no_value_is_spelt_as_python_spells_it(value):
    message = Message("a.b", "{one!r} {two} {three} {four:,}", {"one": value, "two": value, "three": kind(value), "four": 1000})
    said = str(message)
    assert len(said) < 700
    assert "\n" not in said
    assert not OF_PYTHON.search(said + shown(value) + plain(value))


def test_messages_that_say_the_same_are_one_line():
    same = [Message("a.b", "no such file", {}, "f")] * 200
    assert lines(same) == ["f: no such file (200 times)"]
    few = [Message("a.b", "no such file", {}, str(number)) for number in range(ALIKE)]
    assert len(lines(few)) == ALIKE

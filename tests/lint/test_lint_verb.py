"""``meshwright lint``: the contract's document, exit statuses, what is chosen, silenced, mended and written; SARIF."""

from __future__ import annotations

import json
import re

import pytest

import meshwright as mw
from meshwright.check import Question, check
from meshwright.cli import main
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.lint.sarif import sarif

SCRIPT = (
    "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
    "for b in l:\n    loss = m(b)\n    loss.backward()\n    total += loss\n"
)
SHELL = "export NCCL_DEBUG=INFO\npython train.py --lr 1\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text(SHELL)
    return tmp_path


def said(capsys, *arguments):
    status = main(["lint", *map(str, arguments)])
    return status, capsys.readouterr()


def test_the_document_of_the_contract_and_the_status(folder, capsys):
    status, out = said(capsys, folder, "--json")
    document = json.loads(out.out)
    assert (status, document["ok"]) == (1, False)
    assert {each["id"] for each in document["findings"]} == {"environment.nccl-debug", "debug.anomaly", "memory.kept-graph"}
    for each in document["findings"]:
        assert {"id", "severity", "message", "file", "line", "column", "source", "fix"} <= set(each)
    (kept,) = (each for each in document["findings"] if each["id"] == "memory.kept-graph")
    assert (kept["severity"], kept["line"], kept["column"], kept["fix"]) == ("error", 6, 5, False)
    assert kept["file"] == str(folder / "train.py")
    assert said(capsys, folder, "--select", "debug,environment")[0] == 0


def test_findings_are_listed_under_their_files(folder, capsys):
    _, out = said(capsys, folder)
    assert "6:5" in out.out
    assert "memory.kept-graph" in out.out
    assert "not ok: 1 error, 1 warning, 1 piece of advice in 2 files; --fix mends 2 of them" in " ".join(out.out.split())


def test_rules_and_groups_are_chosen_and_purposes(folder):
    def ids(**more):
        return [each.id for each in mw.lint(mw.LintRequest(paths=[folder], **more)).linted.findings]

    assert ids(select=["memory"]) == ids(purpose="memory") == ["memory.kept-graph"]
    assert ids(select=["debug.anomaly,environment"]) == ["environment.nccl-debug", "debug.anomaly"]
    assert ids(purpose="speed") == ["environment.nccl-debug", "debug.anomaly"]


@pytest.mark.parametrize(("arguments", "line"), [
    ((), "error: PATH is missing: files or folders that are to be looked at"),
    (("nowhere.py",), "error: nowhere.py: no such file"),
    ((".", "--select", "step.itm"), "error: --select: no rule and no group of rules is called 'step.itm'; did you mean step.item"),
    (("--explain", "step"), "error: --explain: step is a group of rules: name one of step.item"),
    ((".", "--purpose", "fun"), "error: --purpose: 'fun' is none of speed, memory"),
])
def test_bad_input_is_a_line_and_the_status_2(capsys, arguments, line):
    status, out = said(capsys, *arguments)
    assert status == 2
    assert out.err.startswith(line)


def test_a_file_that_no_rule_looks_at(tmp_path, capsys):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG")
    status, out = said(capsys, path)
    assert (status, "neither Python" in out.err) == (2, True)


def test_one_rule_is_explained(capsys):
    status, out = said(capsys, "--explain", "step.item")
    assert status == 0
    assert "triggers it" in out.out
    assert "source: PyTorch performance tuning guide" in out.out
    assert json.loads(said(capsys, "--explain", "megatron.connections", "--json")[1].out)["rule"]["severity"] == "error"


@pytest.mark.parametrize(("line", "left"), [
    ("    total += loss  # meshwright: ignore[memory.kept-graph]\n", 0),
    ("    total += loss  # meshwright: ignore[memory]\n", 0),
    ("    # meshwright: ignore[step.item, memory.kept-graph]: on purpose\n    total += loss\n", 0),
    ("    total += loss  # meshwright: ignore[step.item]\n", 1),
    ("    total += loss  # meshwright: ignore\n", 1),
])
def test_a_comment_silences_a_rule(folder, line, left):
    path = folder / "train.py"
    path.write_text(SCRIPT.replace("    total += loss\n", line))
    assert len(mw.lint(mw.LintRequest(paths=[path], select=["memory"])).linted.findings) == left


def test_a_diff_changes_nothing_and_fix_what_it_showed(folder, capsys):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    status, out = said(capsys, folder, "--diff")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert "-torch.autograd.set_detect_anomaly(True)\n+torch.autograd.set_detect_anomaly(False)" in out.out
    assert "-export NCCL_DEBUG=INFO\n+export NCCL_DEBUG=WARN" in out.out
    status, out = said(capsys, folder, "--fix", "--json")
    document = json.loads(out.out)
    assert (status, [each["id"] for each in document["findings"]]) == (1, ["memory.kept-graph"])
    assert sorted(document["written"]) == sorted(map(str, before))
    assert (folder / "run.sh").read_text() == SHELL.replace("INFO", "WARN")
    assert said(capsys, folder, "--diff", "--json")[1].out.count('"diff": ""') == 1


def test_what_is_read_is_what_is_changed(folder, monkeypatch):
    from meshwright.lint import run

    def meddled(text, path, wanted):
        (folder / "run.sh").write_text("# another hand\n" + SHELL)
        return text.replace("INFO", "WARN")

    monkeypatch.setattr(run, "mended_text", meddled)
    with pytest.raises(InputError, match="changed"):
        mw.lint(mw.LintRequest(paths=[folder / "run.sh"], fix=True))
    assert (folder / "run.sh").read_text() == "# another hand\n" + SHELL


def test_sarif_is_written_once_and_has_its_shape(folder, capsys):
    out = folder / "found.sarif"
    assert said(capsys, folder, "--sarif", out)[0] == 1
    document = json.loads(out.read_text())
    shaped(document)
    (run,) = document["runs"]
    assert [each["ruleId"] for each in run["results"]] == ["environment.nccl-debug", "debug.anomaly", "memory.kept-graph"]
    out.write_text("mine")
    status, said_ = said(capsys, folder, "--sarif", out)
    assert (status, "exists" in said_.err or "--force" in said_.err) == (2, True)
    assert out.read_text() == "mine"
    assert said(capsys, folder, "--sarif", out, "--force")[0] == 1


def shaped(document):
    """What the schema of SARIF 2.1.0 demands of the parts that are written: required keys, kinds, enumerations, indices."""
    assert (document["version"], document["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    assert set(document) == {"$schema", "version", "runs"}
    for run in document["runs"]:
        assert set(run) == {"tool", "columnKind", "results"}
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        driver = run["tool"]["driver"]
        assert set(driver) == {"name", "version", "semanticVersion", "rules"}
        assert re.fullmatch(r"\d+\.\d+\.\d+.*", driver["semanticVersion"])
        ids = [each["id"] for each in driver["rules"]]
        assert len(ids) == len(set(ids))
        for rule in driver["rules"]:
            assert rule["shortDescription"]["text"]
            assert rule["help"]["text"]
            assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
        for result in run["results"]:
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in ("none", "note", "warning", "error")
            assert result["message"]["text"]
            for location in result["locations"]:
                place = location["physicalLocation"]
                assert re.fullmatch(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})+", place["artifactLocation"]["uri"])
                assert all(isinstance(each, int) and each >= 1 for each in place["region"].values())


def test_check_and_lint_say_a_variable_in_the_same_words():
    flags = "--num-layers 4 --hidden-size 64 --bf16"
    text = f"export NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO\ntorchrun --nproc-per-node 8 pretrain_gpt.py {flags}\n"
    megatron = framework("megatron")
    checked = check(Question(framework=megatron, reading=megatron.read((File(path="run.sh", text=text),))))
    from meshwright.lint.run import Wanted, findings_of

    found = findings_of(text, "run.sh", Wanted())
    for name in ("NCCL_P2P_DISABLE=1", "NCCL_DEBUG=INFO"):
        (one,) = {each.message.words for each in found if each.message.words.startswith(name)}
        (other,) = {each.message.words for each in checked.findings if each.message.words.startswith(name)}
        assert one == other
    ours = {each.id for each in found if each.id.startswith("megatron.")}
    assert ours
    assert ours <= {each.message.id for each in checked.findings}, "lint asks the rules of the framework that check asks"


def test_nothing_found_is_a_document_too():
    shaped(sarif(()))

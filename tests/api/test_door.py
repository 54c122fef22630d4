"""The door: every verb is a function from a request value to an answer value, and the command line only calls it."""

from __future__ import annotations

import dataclasses
import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest

import meshwright as mw
from meshwright.api import VERBS
from meshwright.api.fields import Faults
from meshwright.cli.app import MODULES
from meshwright.cli.app import VERBS as COMMANDS
from meshwright.search import compare

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 128, "sequence": 8192}
LAYOUT = "tp2 mb1 sp zero1"


def request_of(verb: str):
    return getattr(mw, f"{verb.rstrip('_').capitalize()}Request")


def test_every_command_is_a_verb_of_the_door():
    assert {name.rstrip("_") for name in VERBS} == set(COMMANDS)
    for command in COMMANDS:
        module = import_module(f"meshwright.cli.{MODULES.get(command, command)}")
        verb = next(name for name in VERBS if name.rstrip("_") == command)
        assert module.ASK is getattr(mw, verb)
        assert module.REQUEST is request_of(verb)


@pytest.mark.parametrize("verb", VERBS)
def test_a_request_has_the_fields_of_its_table_and_is_documented(verb):
    request = request_of(verb)
    assert sorted(field.name for field in dataclasses.fields(request)) == sorted(field.name for field in request.FIELDS)
    assert all(field.default is not dataclasses.MISSING for field in dataclasses.fields(request)), "nothing said is a request, too"
    assert request().read(Faults()) is not None
    for described in (request, getattr(mw, verb), getattr(mw, f"{verb.rstrip('_').capitalize()}Answer")):
        assert inspect.getdoc(described)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    answer = mw.plan(mw.PlanRequest(**CASE, pin={"tp": 2, "pp": 1}, top=1, save=folder / "run"))
    assert answer.ok
    return folder / "run"


def test_plan_says_the_same_as_the_command_line(capsys):
    from meshwright.cli import main

    answer = mw.plan(mw.PlanRequest(**CASE, pin=["tp=2", "pp=1"], top=2))
    words = [f"--{name.replace('_', '-')}={value}" for name, value in CASE.items() if name != "model"]
    assert main(["plan", "llama3-8b", *words, "--pin", "tp=2", "--pin", "pp=1", "--top", "2", "--json"]) == 0
    printed, said = json.loads(capsys.readouterr().out), answer.to_json()
    for document in (printed, said):
        document.pop("search_s"), document.pop("evaluations_per_s")
    assert json.loads(json.dumps(said)) == printed


def test_values_of_the_domain_are_taken_as_they_are(tmp_path):
    cluster, model = mw.cluster_for("h100-sxm", nodes=1), mw.load_model("llama3-8b")
    said = {"model": model, "cluster": cluster, "global_batch": 128, "sequence": 8192}
    by_name = mw.estimate(mw.EstimateRequest(**CASE, layout=LAYOUT))
    assert mw.estimate(mw.EstimateRequest(**said, layout=LAYOUT)).estimate == by_name.estimate
    with pytest.raises(mw.InputError, match="given as a value"):
        mw.plan(mw.PlanRequest(**said, pin={"tp": 2, "pp": 1}, save=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_all_faults_of_a_request_come_at_once():
    with pytest.raises(mw.InputError) as error:
        mw.plan(mw.PlanRequest(model="nomodel", device="nodevice", nodes=0, global_batch="x", sequence=8192, pin={"tq": 1}))
    said = " ".join(str(message) for message in error.value.messages)
    for word in ("nomodel", "nodevice", "--nodes", "--global-batch", "tq"):
        assert word in said


def test_a_case_with_a_layout_is_still_answered_by_the_bare_prediction():
    case = mw.make_case("llama3-8b", mw.cluster_for("h100-sxm", nodes=1), global_batch_sequences=128, sequence_tokens=8192)
    asked = mw.estimate(mw.EstimateRequest(**CASE, layout=LAYOUT))
    assert mw.estimate(case, asked.estimate.layout).step_s == asked.estimate.step_s


def test_estimate_and_explain_in_one_line():
    assert mw.estimate(mw.EstimateRequest(**CASE, layout=LAYOUT)).to_json()["label"].startswith("tp2")
    assert mw.explain(mw.ExplainRequest(**CASE, layout=LAYOUT)).to_json()["explanation"]


def test_export_import_check_and_fix_in_one_line(saved, tmp_path):
    written = mw.export(mw.ExportRequest(plan=saved, to="megatron", out=tmp_path / "launch"))
    script = next(path for path in written.files if path.endswith("train.sh") and "probe" not in path)
    named = {name: CASE[name] for name in ("model", "device", "nodes")}
    assert mw.import_(mw.ImportRequest(files=[script], from_="megatron", **named)).to_json()["label"].startswith("tp2")
    assert "findings" in mw.check(mw.CheckRequest(files=[script], from_="megatron", **named, claim={"mfu": 0.4})).to_json()
    assert mw.fix(mw.FixRequest(files=[script], from_="megatron", **named, fit=True)).to_json()["changes"] is not None


def test_balance_in_one_line():
    answer = mw.balance(mw.BalanceRequest(guide=True, stages=4, layers=16))
    assert answer.to_json()
    asked = mw.BalanceRequest(**CASE, layout="tp2 pp2 mb1 sp zero1", time_limit=2)
    assert mw.balance(asked).to_json()["stage_layers"]


def test_catalog_in_one_line():
    assert mw.catalog(mw.CatalogRequest(kind="devices", name="h100-sxm")).to_json()["facts"]["name"] == "h100-sxm"
    assert mw.catalog(mw.CatalogRequest(kind="models")).to_json()["entries"]
    assert mw.catalog(mw.CatalogRequest(kind="runs", near="8B", limit=2)).to_json()["entries"]


def test_validate_and_calibrate_in_one_line(tmp_path):
    from meshwright.evidence.rows.table import shipped_table

    lines = Path(shipped_table().path).read_text(encoding="utf-8").splitlines()
    few = tmp_path / "few.csv"
    few.write_text("\n".join([lines[0], *[line for line in lines if line.startswith("playbook-")][:6]]) + "\n")
    assert mw.validate(mw.ValidateRequest(csv=few, calibration="none")).to_json()
    out = tmp_path / "mine.json"
    assert mw.calibrate(mw.CalibrateRequest(runs=[few], out=out)).to_json()["path"] == str(out)


@pytest.mark.parametrize(
    ("verb", "missing"), [("profile", "--out"), ("rehearse", "--global-batch"), ("step", "MODEL"), ("dryrun", "--layout")]
)
def test_verbs_that_run_something_refuse_in_one_line(verb, missing):
    asked = {
        "profile": {"out": "x.txt"}, "rehearse": {"model": "llama3-8b"}, "step": {}, "dryrun": {"model": "llama3-8b"},
    }[verb]
    with pytest.raises(mw.InputError, match=missing):
        getattr(mw, verb)(request_of(verb)(**asked))


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-deepspeed"])
def test_every_listed_plan_is_compared_at_its_own_place(framework):
    """By its label, which leaves out what a layout has no use for: transfers beside compute without a pipeline."""
    case = {"model": "llama2-7b", "device": "v100-32g", "nodes": 2, "global_batch": 64, "sequence": 4096, "precision": "fp16"}
    found = mw.plan(mw.PlanRequest(**case, framework=framework, top=3))
    for each in found.result.plans:
        own = found.given.layout(each.label)
        said = compare(found.given.case, found.given.framework.features, found.result, own)
        assert (said.label, said.rank) == (each.label, each.rank)

"""The atlas: its cells are what ``plan`` says, whatever ends it is gone on with, and measured cells are the best of their runs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from tests.draws import one_of

import meshwright as mw
from meshwright.api.cells.kept import Kept
from meshwright.api.cells.question import Question
from meshwright.api.cells.sizes import model_of
from meshwright.api.views.atlas import COLUMNS, COMPARED
from meshwright.errors import InputError, NoAnswerError
from meshwright.evidence.rows.columns import SCHEMA
from meshwright.outputs import write

PLAYBOOK = {"device": "h100-sxm", "global_batch": 256, "sequence": 4096, "framework": "nanotron"}
CASES = [
    ("playbook", "1b", 2, PLAYBOOK),
    ("playbook", "80b", 16, {**PLAYBOOK, "pin": ["recompute=none"]}),
    ("playbook", "80b", 2, PLAYBOOK),
    ("llama3", "70b", 2, {**PLAYBOOK, "framework": "megatron"}),
    ("llama3", "1b", 2, {**PLAYBOOK, "global_batch": 7}),
    ("llama3", "8b", 1, {**PLAYBOOK, "framework": "megatron", "global_batch": 64}),
    ("llama3", "3b", 4, {**PLAYBOOK, "framework": "torchtitan"}),
    ("playbook", "8b", 4, {**PLAYBOOK, "objective": "memory"}),
    ("llama3", "8b", 3, {**PLAYBOOK, "framework": "megatron", "device": "a100-80g-sxm"}),
]


@pytest.mark.parametrize(("family", "word", "nodes", "said"), one_of(2, CASES))
def test_a_refined_cell_is_the_first_answer_of_plan(family, word, nodes, said):
    cell = mw.atlas(mw.AtlasRequest(sizes=[word], family=family, nodes=[nodes], **said)).cells[0]
    assert cell.grade == "refined"
    try:
        answer = mw.plan(mw.PlanRequest(model=model_of(word, family), nodes=nodes, **said))
    except (InputError, NoAnswerError):
        assert cell.label is None and cell.why and cell.missing_bytes is None
        return
    if not answer.ok:
        unmet = answer.result.verdict.unmet[0]
        assert cell.label is None and cell.missing_bytes == pytest.approx(unmet.gap, abs=1) and cell.why == unmet.constraint
        return
    best = answer.result.plans[0].estimate
    assert (cell.label, cell.step_s, cell.mfu_ratio) == (best.label, best.step_s, best.mfu_ratio)
    assert cell.tokens_per_s_per_device == best.tokens_per_s_per_device
    assert cell.memory_reserved_bytes == round(best.memory_reserved_bytes)
    assert (cell.linearity_ratio, cell.linearity_baseline_devices) == (best.linearity_ratio, best.linearity_baseline_devices)
    assert list(cell.interval["step_s"]) == list(best.interval.step_s)
    low, high = cell.interval["mfu_ratio"]
    assert low < cell.mfu_ratio < high
    assert cell.layout["num_microbatches"] == best.layout.num_microbatches and cell.layout["zero_stage"] == best.layout.zero_stage


PACKED = [
    ({"model": "llama3-8b", "nodes": 2}, {"task": "sft", "pin": ["cp=1", "pp=1"]}),
    ({"model": "llama3-8b", "nodes": 1}, {"max_tokens": 8192}),
    ({"model": "qwen3-30b-a3b", "nodes": 1}, {"packs": 160, "pin": ["recompute=full"]}),
    ({"model": "qwen2.5-7b", "nodes": 1}, {"task": "lora", "max_tokens": 4096, "packs": 160}),
    ({"model": "llama3-70b", "nodes": 1}, {"task": "sft"}),
    ({"model": "llama3-8b", "nodes": 2}, {"task": "sft"}),
]
"""One of three by default: caps that are searched under pins, and a cap and a number of packs that are given."""


@pytest.mark.parametrize(("own", "said"), one_of(3, PACKED))
def test_a_cell_of_samples_is_the_first_answer_of_plan(own, said, tmp_path):
    """The same layout in the same packs, with its figures and its linearity."""
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(str(64 + (701 * each) % 3900) for each in range(300)), encoding="utf-8")
    shared = {"device": "h100-sxm", "global_batch": 256, "lengths": str(file), **said}
    cell = mw.atlas(mw.AtlasRequest(models=[own["model"]], nodes=[own["nodes"]], **shared)).cells[0]
    answer = mw.plan(mw.PlanRequest(**own, **shared))
    batch = answer.given.case.batch
    assert cell.batch == {
        "global_batch_sequences": batch.global_batch_sequences, "sequence_tokens": batch.sequence_tokens, "samples": 256,
    }
    if not answer.ok:
        assert cell.label is None and cell.missing_bytes == pytest.approx(answer.result.verdict.unmet[0].gap, abs=1)
        return
    best = answer.result.plans[0].estimate
    assert (cell.label, cell.step_s, cell.mfu_ratio) == (best.label, best.step_s, best.mfu_ratio)
    assert (cell.linearity_ratio, cell.linearity_baseline_devices) == (best.linearity_ratio, best.linearity_baseline_devices)


def test_samples_are_packed_alike_in_every_process(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(str(64 + (701 * each) % 3900) for each in range(300)), encoding="utf-8")
    said = {"models": ["llama3-8b"], "nodes": [1, 2], "device": "h100-sxm", "global_batch": 256, "lengths": str(file),
            "coarse": True}
    one, two = (mw.atlas(mw.AtlasRequest(jobs=jobs, **said)).to_json() for jobs in (1, 2))
    assert one["cells"] == two["cells"] and one["cells"][0]["samples"] == 256


def test_a_coarse_atlas_is_marked_and_empty_where_the_refined_one_is():
    said = {"sizes": ["1b,80b"], "nodes": [1, 4], **PLAYBOOK}
    coarse = mw.atlas(mw.AtlasRequest(coarse=True, **said)).cells
    refined = mw.atlas(mw.AtlasRequest(**said)).cells
    for rough, fine in zip(coarse, refined, strict=True):
        assert (rough.place, rough.label is None) == (fine.place, fine.label is None)
        assert fine.grade == "refined" and rough.grade == ("coarse" if rough.label else "refined")
        if rough.label is not None:
            assert fine.step_s / fine.fit_probability <= 1.006 * rough.step_s / rough.fit_probability


SMALL = {"sizes": ["1b"], "nodes": [1, 2, 4], **PLAYBOOK}


def rows_of(path):
    """The rows of a file."""
    return list(csv.DictReader(io.StringIO(path.read_text())))


def interrupted_after(monkeypatch, cells):
    """Question.answer that is interrupted after so many cells; the list of what was asked."""
    asked, own = [], Question.answer

    def answer(self, grade):
        if len(asked) == cells:
            raise KeyboardInterrupt
        asked.append((self.place, grade))
        return own(self, grade)

    monkeypatch.setattr(Question, "answer", answer)
    return asked


@pytest.mark.parametrize("cells", [1, 4])
def test_an_interrupted_atlas_says_what_it_has_and_is_gone_on_with(cells, tmp_path, monkeypatch):
    whole = mw.atlas(mw.AtlasRequest(**SMALL)).to_json()
    kept, out = tmp_path / "cells.jsonl", tmp_path / "atlas.csv"
    request = mw.AtlasRequest(keep=kept, out=[out], **SMALL)
    with monkeypatch.context() as patch:
        interrupted_after(patch, cells)
        answer = mw.atlas(request)
    assert (answer.status, answer.interrupted, answer.missing) == (130, True, max(0, 3 - cells))
    assert not answer.to_json()["complete"] and len(rows_of(out)) == min(cells, 3)
    with kept.open("a") as stream:
        stream.write('{"key": "torn')
    with monkeypatch.context() as patch:
        asked = interrupted_after(patch, inf)
        answer = mw.atlas(request)
    assert len(asked) == 6 - cells, "what was kept is not searched again"
    view = answer.to_json()
    assert view["cells"] == json.loads(json.dumps(whole["cells"])) and view["complete"] and answer.status == 0
    assert mw.atlas(request).to_json()["cells"] == view["cells"]


def test_an_interrupt_before_the_first_cell_ends_all(monkeypatch):
    interrupted_after(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        mw.atlas(mw.AtlasRequest(**SMALL))


def test_other_questions_do_not_take_kept_cells(tmp_path, monkeypatch):
    kept = tmp_path / "cells.jsonl"
    mw.atlas(mw.AtlasRequest(keep=kept, coarse=True, **SMALL))
    asked = interrupted_after(monkeypatch, inf)
    mw.atlas(mw.AtlasRequest(keep=kept, coarse=True, **{**SMALL, "global_batch": 512}))
    assert len(asked) == 3


@pytest.mark.parametrize("line", ['{"key": "a", "cell": {}}', "[]", "x", '{"key": 1, "cell": null}'])
def test_a_kept_file_with_a_line_of_another_kind_is_refused(line, tmp_path):
    kept = tmp_path / "cells.jsonl"
    Kept(str(kept))
    with kept.open("a") as stream:
        stream.write(f"{line}\n")
    before = kept.read_bytes()
    with pytest.raises(InputError, match="line 2 is no cell"):
        Kept(str(kept))
    assert kept.read_bytes() == before


def test_files_are_written_coarsely_first_and_refined_in_place(tmp_path, monkeypatch):
    out = [tmp_path / f"atlas.{kind}" for kind in ("csv", "svg", "html")]
    seen = []

    def told(answer):
        seen.append([path.read_text() for path in out])
        assert {each.grade for each in answer.cells} == {"coarse"}

    answer = mw.atlas(mw.AtlasRequest(out=out, **SMALL), told=told)
    assert answer.saved == tuple(map(str, out)) and answer.unsaved is None
    after = [path.read_text() for path in out]
    assert all("coarse" in text for text in seen[0]) and not any("coarse:" in text for text in after[:2])
    rows = list(csv.DictReader(io.StringIO(after[0])))
    assert list(rows[0]) == list(COLUMNS) and [float(row["mfu_ratio"]) for row in rows] == [
        pytest.approx(each.mfu_ratio) for each in answer.cells
    ]


def test_a_file_that_somebody_changed_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "atlas.csv"
    answer = mw.atlas(mw.AtlasRequest(out=[out], **SMALL), told=lambda _: out.write_text("mine"))
    assert out.read_text() == "mine" and answer.status == 2 and answer.unsaved is not None and len(answer.cells) == 3


BAD = {
    "no cells": ({"models": []}, "no cells"),
    "no such model": ({"models": ["llama-nowhere"]}, "llama-nowhere"),
    "no such size": ({"sizes": ["8"]}, "is no size"),
    "no such family": ({"sizes": ["8b"], "family": "llamas"}, "unknown family"),
    "a family of nothing": ({"models": ["llama3-8b"], "family": "llama3"}, "--family needs --sizes"),
    "no numbers": ({"models": ["llama3-8b"], "nodes": ["few"]}, "not a number"),
    "both axes": ({"models": ["llama3-8b"], "nodes": [1], "devices": [8]}, "contradict"),
    "a hundred thousand cells": ({"models": [f"m{place}" for place in range(100)], "nodes": ["1..1000+1"]}, "at most 2,000"),
    "another kind of file": ({"models": ["llama3-8b"], "out": ["atlas.pdf"]}, ".html"),
    "no table": ({"csv": "missing.csv"}, "no such file"),
    "two sources": ({"csv": "shipped", "store": "missing.db"}, "one of them"),
    "a difference to nothing": ({"models": ["llama3-8b"], "difference": True}, "needs measured runs"),
    "a coarse measurement": ({"csv": "shipped", "coarse": True}, "--coarse is for predictions"),
    "no such runs": ({"csv": "shipped", "models": ["llama-nowhere"]}, "no cells: no run of shipped"),
    "a task that it does not train": ({"models": ["llama3-8b"], "task": "lora"}, "does not train with lora"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_said_before_anything_is_searched(name, monkeypatch):
    monkeypatch.setattr(Question, "answer", lambda *_: pytest.fail("it searched"))
    said, words = BAD[name]
    shared = {} if "csv" in said else {**PLAYBOOK, "nodes": () if "devices" in said else [1]}
    with pytest.raises(InputError) as error:
        mw.atlas(mw.AtlasRequest(**{**shared, **said}))
    assert words in str(error.value)


def test_an_existing_file_is_refused_before_anything_is_searched(tmp_path, monkeypatch):
    out = tmp_path / "atlas.html"
    out.write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Question, "answer", lambda *_: pytest.fail("it searched"))
        with pytest.raises(InputError, match="exists; --force replaces it"):
            mw.atlas(mw.AtlasRequest(out=[out], **SMALL))
    assert out.read_text() == "mine"
    assert mw.atlas(mw.AtlasRequest(out=[out], force=True, coarse=True, **SMALL)).status == 0 and "<html" in out.read_text()


def test_tables_and_stores_of_another_kind_are_refused_and_not_touched(tmp_path):
    table = tmp_path / "other.csv"
    table.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="missing columns"):
        mw.atlas(mw.AtlasRequest(csv=table))
    with pytest.raises(InputError, match="is no store of trials"):
        mw.atlas(mw.AtlasRequest(store=table, models=["llama3-8b"], nodes=[1], **PLAYBOOK))
    assert [path.name for path in tmp_path.iterdir()] == ["other.csv"]
    with pytest.raises(InputError, match="is no file of an atlas' cells"):
        mw.atlas(mw.AtlasRequest(keep=table, **SMALL))
    assert table.read_text() == "a,b\n1,2\n"


ROW = {
    "source": "nobody", "status": "ok", "task": "pretrain", "framework": "nanotron", "model": "mine", "n_params_B": "1.3422",
    "n_layers": "16", "hidden": "2048", "n_heads": "32", "n_kv_heads": "32", "ffn_hidden": "8192", "vocab": "131072",
    "gated_mlp": "1", "attention": "mha", "gpu": "h100-80g-sxm", "n_gpus": "8", "gpus_per_node": "8", "precision": "bf16",
    "seq": "4096", "gbs": "256",
    "mbs": "2", "tp": "1", "sp": "0", "cp": "1", "pp": "1", "dp": "8", "zero": "1", "recompute": "none", "step_time_s": "3.2",
}


def table(tmp_path, *rows):
    """A table of runs; each row says how it differs."""
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, SCHEMA, restval="")
        writer.writeheader()
        for place, row in enumerate(rows):
            writer.writerow({**ROW, "id": f"run-{place}", **row})
    return path


def test_a_measured_cell_is_its_fastest_run(tmp_path):
    path = table(
        tmp_path, {"step_time_s": "3.4"}, {}, {"zero": "0", "step_time_s": "3.3"},
        {"status": "failed", "step_time_s": "", "mbs": "16"},
        {"n_gpus": "16", "dp": "16", "step_time_s": "1.65", "mem_gb": "40"}, {"flag": "doubted", "step_time_s": "0.1"},
        {"n_gpus": "32", "dp": "32", "status": "failed", "step_time_s": ""},
    )
    one, two, four = mw.atlas(mw.AtlasRequest(csv=path)).cells
    assert (one.run["id"], one.run["ran"], one.run["failed"]) == ("run-1", 3, 1)
    assert one.tokens_per_s_per_device == pytest.approx(256 * 4096 / 3.2 / 8, rel=1e-5) and one.linearity_ratio == 1.0
    assert two.linearity_ratio == pytest.approx(3.2 / 1.65 / 2, rel=1e-4) and two.memory_peak_bytes == 40 * 2**30
    assert four.label is None and four.why == "1 run tried, none worked"
    assert [each.devices for each in mw.atlas(mw.AtlasRequest(csv=path, nodes=[2])).cells] == [16]
    assert [each.devices for each in mw.atlas(mw.AtlasRequest(csv=path, devices=["8..16"], models=["MINE"])).cells] == [8, 16]


def test_rows_of_a_model_that_differ_otherwise_are_told_apart(tmp_path):
    path = table(tmp_path, {}, {"gbs": "512", "step_time_s": "6.3"}, {"framework": "picotron", "step_time_s": "4"})
    assert {each.series for each in mw.atlas(mw.AtlasRequest(csv=path)).cells} == {
        "mine, nanotron, batch 256", "mine, nanotron, batch 512", "mine, picotron, batch 256",
    }
    path = table(tmp_path, {}, {"n_layers": "32", "n_params_B": "", "step_time_s": "6.3"})
    assert {each.series for each in mw.atlas(mw.AtlasRequest(csv=path)).cells} == {"mine, 16 layers", "mine, 32 layers"}


def test_a_difference_says_what_sets_layouts_apart(tmp_path):
    said = {"sizes": ["1b"], "nodes": [1, 2, 4], "pin": ["recompute=none", "cp=1"], **PLAYBOOK}
    best = mw.atlas(mw.AtlasRequest(**said)).cells
    assert best[0].label == "tp1 pp1 dp8 mb2 zero1", "the rows below are made for it"
    path = table(
        tmp_path, {"step_time_s": str(best[0].step_s)}, {"tp": "8", "dp": "1", "sp": "1", "zero": "0", "step_time_s": "9"},
        {"n_gpus": "16", "tp": "2", "sp": "1", "dp": "8", "pp": "1", "mbs": "1", "step_time_s": "1.5"},
        {"n_gpus": "16", "dp": "16", "step_time_s": "2.0"}, {"hidden": "4096", "step_time_s": "20"}, {"step_time_s": "0.1"},
    )
    answer = mw.atlas(mw.AtlasRequest(csv=path, difference=True, **said))
    one, two, four = answer.differences
    assert (one.verdict, one.changes, one.holds, one.regret_ratio) == ("same", {}, True, pytest.approx(0.0, abs=1e-5))
    assert one.measured_layout_step_s == pytest.approx(one.predicted_step_s)
    assert two.changes == {"dp": (16, 8), "tp": (1, 2), "mb": (2, 1)} and two.verdict in {"within", "other"}
    assert two.tried_step_s == pytest.approx(2.0) and two.regret_ratio == pytest.approx(0.25)
    assert (four.verdict, four.measured_step_s) == ("only predicted", None)
    assert [each.words for each in answer.notes] == ["1 cells of measured runs are of other cases, and are left out"]
    assert [each.source for each in answer.cells] == ["predicted"] * 3 + ["measured"] * 2
    text = (tmp_path / "out.csv")
    mw.atlas(mw.AtlasRequest(csv=path, difference=True, out=[text], coarse=True, **said))
    row = rows_of(text)[0]
    assert list(row) == [*COLUMNS, *COMPARED] and row["verdict"] == "same"


def test_a_difference_without_models_predicts_the_cases_of_the_runs(tmp_path):
    answer = mw.atlas(mw.AtlasRequest(csv=table(tmp_path, {}), difference=True))
    predicted, measured = answer.cells
    assert predicted.place == measured.place and predicted.label and answer.differences[0].measured_label == measured.label
    asked = {**PLAYBOOK, "sizes": ["1b"], "nodes": [1]}
    alike = mw.atlas(mw.AtlasRequest(**asked)).cells[0]
    assert predicted.label == alike.label, "on the cluster of the runs"
    assert predicted.step_s == pytest.approx(alike.step_s, rel=0.01)


def test_the_trials_of_a_store_are_measured_cells(tmp_path):
    from meshwright.api.cells.axes import words
    from meshwright.api.fields import Faults
    from meshwright.api.measuring.subject import subject
    from meshwright.api.verbs.sweep import SweepRequest
    from meshwright.measure.outcome import Outcome
    from meshwright.measure.store import Store

    assert words(["llama3-8b"]) == ["llama3-8b"]
    faults = Faults()
    said = {"device": "h100-sxm", "global_batch": 64, "sequence": 4096, "framework": "nanotron"}
    given = subject(SweepRequest(model="llama3-8b", nodes=1, **said).read(faults), faults)
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for label, step_s in (("tp8 pp1 dp1 mb1 sp zero0", 4.0), ("tp4 pp2 dp1 mb1 sp zero0", 5.0)):
            claim = store.claim(given.key, label, executor="local", folder="a", retry=frozenset(), most=1)
            outcome = Outcome(status="ok", step_s=step_s, tokens_per_s_per_device=64 * 4096 / step_s / 8, memory_peak_bytes=5e10)
            store.finish(claim.attempt, outcome)
        store.claim("another case", "tp1 pp1 dp8 mb1 zero0", executor="local", folder="a", retry=frozenset(), most=1)
    answer = mw.atlas(mw.AtlasRequest(store=path, models=["llama3-8b"], nodes=[1, 2], **said))
    (cell,) = answer.cells
    assert (cell.source, cell.step_s, cell.devices, cell.layout["tensor_parallel"]) == ("measured", 4.0, 8, 8)
    assert cell.mfu_ratio is not None and "1 trials of runs.db" in answer.notes[0].words
    with pytest.raises(InputError, match="has no trial of these cases; it has 3 of others"):
        mw.atlas(mw.AtlasRequest(store=path, models=["llama3-8b"], nodes=[4], **said))
    both = mw.atlas(mw.AtlasRequest(store=path, models=["llama3-8b"], nodes=[1], difference=True, **said))
    assert [each.source for each in both.cells] == ["predicted", "measured"] and both.differences[0].measured_step_s == 4.0


def test_a_formula_in_a_table_stays_text(tmp_path):
    out = tmp_path / "out.csv"
    mw.atlas(mw.AtlasRequest(csv=table(tmp_path, {"model": "=HYPERLINK(1)"}), out=[out]))
    assert rows_of(out)[0]["model"] == "'=HYPERLINK(1)"


def test_a_model_as_a_value_is_a_row_of_its_own(tmp_path):
    own = replace(model_of("1b", "playbook"), name="]]><script>")
    out = [tmp_path / "a.svg", tmp_path / "a.html"]
    answer = mw.atlas(mw.AtlasRequest(models=[own], nodes=[1], out=out, coarse=True, **PLAYBOOK))
    assert answer.cells[0].series == "]]><script>"
    assert not any("]]><script>" in path.read_text() for path in out)


def test_without_pillow_a_png_is_refused_in_words(monkeypatch):
    from meshwright.api.cells import asked

    monkeypatch.setattr(asked, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"a \.png needs Pillow"):
        mw.atlas(mw.AtlasRequest(out=["a.png"], **SMALL))
    assert not Path("a.png").exists() and write([]) == []

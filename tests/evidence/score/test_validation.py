"""Validation: rows are predicted by fits that have not seen them, on one process or two, and every row ends somewhere."""

from __future__ import annotations

import gc
import io
import sys
from dataclasses import replace
from statistics import median

import pytest
from tests.evidence.runs_csv import cells, write_runs

from meshwright.api.verbs.validate import refusals
from meshwright.domain.estimate import Interval
from meshwright.errors import InputError, fault
from meshwright.evidence.fit.fitters import Fixed, prior_fitter
from meshwright.evidence.rows.groups import folds
from meshwright.evidence.rows.reading import read_runs
from meshwright.evidence.rows.table import EXAMPLES, by_number, count_reasons, open_table, read_table, shipped_table
from meshwright.evidence.score import columns, prediction, validation
from meshwright.evidence.score.rows_csv import COLUMNS, row_writer, rows_csv
from meshwright.evidence.score.summary import summarise


def table_of(tmp_path, *rows):
    return read_table(write_runs(tmp_path / "runs.csv", *rows))


def validated(table, scheme="grouped", fitter=None, **more):
    return validation.validate(table, scheme=scheme, fitter=fitter or prior_fitter(), legal=refusals, **more)


def test_every_row_ends_in_one_place(tmp_path):
    found = validated(
        table_of(
            tmp_path, {}, {"tp": "3"}, {"tp": "16"}, {"tp": "0"}, {"dp": "9"}, {"gpu": "tpu-v9"}, {"precision": "int3"},
            {"flag": "doubt"}, {"gbs": "7"}, {"hidden": ""}, {"n_gpus": "12", "gbs": "48"}, {"status": "", "step_time_s": ""},
        )
    )
    assert count_reasons(found.skipped) == {
        "architecture is blank": 1, "devices are no whole nodes": 1, "flagged": 1, "unknown device": 1, "unknown precision": 1,
    }
    assert [(each.id, each.predicted_fits, each.status) for each in found.rows] == [
        ("a-1", True, "ok"), ("a-2", False, "ok"), ("a-3", False, "ok"), ("a-4", False, "ok"), ("a-5", False, "ok"),
        ("a-9", False, "ok"), ("a-12", True, ""),
    ]
    total = summarise(found).total.scores
    assert (total.n, total.skipped, total.step_n) == (6, 5, 1)
    assert total.fit_accuracy_ratio == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mem_gb": "45000"}, "mem_gb 45000, but h100-sxm has 79"),
        ({"step_time_s": "0.0005"}, "times as fast as h100-sxm computes"),
        ({"n_experts": "8", "top_k": "2", "n_dense_layers": "5"}, "n_dense_layers 5 of n_layers 4"),
        ({"n_experts": "8"}, "top_k, though n_experts is given"),
        ({"n_layers": "20000"}, "is more than 10000"),
        ({"n_layers": "9000", "pp": "8", "vpp": "1000"}, "8000 chunks, 512 is the limit"),
        ({"n_kv_heads": "7"}, "num_key_value_heads=7 does not divide num_heads=8"),
        ({"gpus_per_node": "3"}, "no whole nodes of 3"),
        ({"n_gpus": "100000000", "gbs": "100000000"}, "is not within 1..10000000"),
    ],
)
def test_figures_that_cannot_be_are_left_out_with_their_reason(tmp_path, cells, reason):
    found = validated(table_of(tmp_path, {}, cells))
    assert [each.id for each in found.rows] == ["a-1"]
    assert reason in found.skipped[0].reason


def test_a_row_that_is_illegal_is_predicted_not_to_fit(tmp_path):
    rows = {"tp": "8", "n_heads": "12", "n_kv_heads": "12", "hidden": "768", "ffn_hidden": "3072"}
    (row,) = validated(table_of(tmp_path, rows)).rows
    assert row.refused == ("tp does not divide the attention heads", "tp and the key-value heads do not divide each other")
    assert (row.predicted_fits, row.fit_probability) == (False, 0.0)


def test_the_model_of_the_catalogue_stands_in_for_a_blank_architecture(tmp_path):
    blank = dict.fromkeys(("n_layers", "hidden", "n_heads", "n_kv_heads", "ffn_hidden", "vocab"), "") | {"step_time_s": "5"}
    found = read_runs(table_of(tmp_path, blank | {"model": "meta-llama/Meta-Llama-3-8B"}, blank | {"model": "/etc/passwd.json"}))
    assert [each.case.model.name for each in found.runs] == ["llama3-8b"]
    assert "is not in the catalogue" in found.skipped[0].reason


@pytest.mark.parametrize("framework", ["My Trainer", "", "colossalai"])
def test_a_framework_never_seen_is_predicted_as_the_nearest_implementation(tmp_path, framework):
    (run,) = read_runs(table_of(tmp_path, {"framework": framework})).runs
    assert run.case.implementation.name == "megatron-te"
    assert run.family == "megatron"


def test_a_run_says_what_a_fit_needs(tmp_path):
    (run,) = read_runs(table_of(tmp_path, {"mem_gb": "20", "mem_kind": "allocated peak", "framework_version": "0.4"})).runs
    assert (run.device, run.family, run.release, run.precision) == ("h100-sxm", "nanotron", ("nanotron", "0.4"), "bf16")
    assert (run.source, run.mem_kind, run.memory_bytes) == ("a", "allocated peak", 20 * 2**30)
    assert run.group[0] == "tiny"


class Remembering:
    """Predicts the median measured step of the rows that it was fitted to, and remembers what they were."""

    label = "remembering@1"

    def __init__(self):
        self.fits = []

    def fit(self, runs):
        self.fits.append({run.id for run in runs})
        return lambda run: replace(run.case, memory_ratio=median(each.step_s for each in runs) if runs else 0.5)

    def fit_folds(self, runs, fold_of):
        count = max(fold_of) + 1
        return [self.fit([run for run, own in zip(runs, fold_of, strict=True) if own != fold]) for fold in range(count)]


@pytest.mark.parametrize("scheme", ["grouped", "leave-one-model-out", "leave-one-cluster-size-out", "leave-one-source-out"])
def test_no_row_is_predicted_by_a_fit_that_saw_its_part(tmp_path, scheme, monkeypatch):
    rows = [
        {"model": f"m{index % 4}", "n_gpus": str(8 * 2 ** (index % 3)), "id": f"{'xyz'[index % 3]}-{index}"} for index in range(24)
    ]
    fitter = Remembering()
    found = validated(table_of(tmp_path, *rows), scheme, fitter)
    assert found.folds == len(fitter.fits) > 2
    parts = dict(zip([each["id"] for each in rows], folds([each.row for each in found.rows], scheme), strict=True))
    for each in found.rows:
        seen = fitter.fits[each.fold]
        assert each.id not in seen
        assert seen == {other for other, fold in parts.items() if fold != each.fold}


def test_in_sample_fits_all_rows_once_and_no_scheme_fits_none(tmp_path):
    table = table_of(tmp_path, {}, {"mbs": "2"})
    fitter = Remembering()
    validated(table, "in-sample", fitter)
    validated(table, None, fitter)
    assert fitter.fits == [{"a-1", "a-2"}, set()]


def test_a_fixed_calibration_is_the_same_for_every_fold():
    fixed = Fixed(label="x@1", predictor=lambda run: run)
    assert fixed.fit(()) is fixed.predictor
    assert fixed.fit_folds((1, 2), (0, 3)) == [fixed.predictor] * 4


def test_two_processes_predict_what_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "CHUNK", 2)
    table = table_of(tmp_path, {}, {"mbs": "2"}, {"tp": "2"}, {"mbs": "4"}, {"zero": "1"})
    ticks = []
    one = validated(table, jobs=1)
    two = validated(table, jobs=2, progress=lambda done, total: ticks.append((done, total)))
    assert two == one
    assert ticks == sorted(ticks)
    assert ticks[-1] == (5, 5)
    assert len(ticks) > 3


def test_memory_is_of_the_kind_that_the_row_measured(tmp_path, monkeypatch):
    actual = prediction.estimate

    def with_interval(case, layout, evaluation):
        found = actual(case, layout, evaluation)
        return replace(found, interval=Interval(level=0.9, step_s=(1.0, 2.0), memory_peak_bytes=(5e9, 6e9),
                                             memory_reserved_bytes=(6e9, 7e9)))

    monkeypatch.setattr(prediction, "estimate", with_interval)
    other = {"framework": "something"}  # nanotron writes what its allocator holds, whatever the column says
    kinds = (other | {"mem_kind": "allocated peak"}, other | {"mem_kind": "reserved peak"})
    allocated, reserved = validated(table_of(tmp_path, *kinds)).rows
    assert allocated.predicted_memory_bytes < reserved.predicted_memory_bytes
    times = reserved.predicted_memory_bytes / allocated.predicted_memory_bytes
    assert allocated.memory_interval_bytes == (5e9, 6e9)
    assert reserved.memory_interval_bytes == pytest.approx((5e9 * times, 6e9 * times))
    assert allocated.step_interval_s == (1.0, 2.0)


def test_a_legal_row_that_has_no_estimate_is_left_out_and_named(tmp_path, monkeypatch):
    def refusing(case, layout, evaluation):
        raise fault("estimate.width", "no width")

    monkeypatch.setattr(prediction, "estimate", refusing)
    found = validated(table_of(tmp_path, {}, {"tp": "16"}))
    assert [each.reason for each in found.skipped] == ["the model has no estimate: no width"]
    assert [each.id for each in found.rows] == ["a-2"]


def test_a_bug_is_no_skipped_row(tmp_path, monkeypatch):
    def broken(case, layout, evaluation):
        raise ZeroDivisionError

    monkeypatch.setattr(prediction, "estimate", broken)
    with pytest.raises(ZeroDivisionError):
        validated(table_of(tmp_path, {}))


def test_a_recipe_that_the_device_does_not_compute_is_predicted_not_to_run(tmp_path):
    (row,) = validated(table_of(tmp_path, {"gpu": "v100-32g"})).rows
    assert row.refused
    assert (row.predicted_step_s, row.predicted_fits) == (None, False)


def test_a_row_is_evaluated_once(tmp_path, monkeypatch):
    """Time, memory as it fits and memory as the run's counter shows it come from one evaluation."""
    evaluated = []
    actual = prediction.evaluate

    def counting(case, layout):
        evaluated.append(layout)
        return actual(case, layout)

    monkeypatch.setattr(prediction, "evaluate", counting)
    monkeypatch.setattr(sys.modules["meshwright.estimate.single"], "evaluate", counting)
    validated(table_of(tmp_path, {"mem_gb": "20"}))
    assert len(evaluated) == 1


def test_columns_of_any_size_are_read_or_left_out(tmp_path):
    """Products of whole numbers that no machine word holds."""
    huge = {"n_layers": "10000", "hidden": "1000000000", "ffn_hidden": "1000000000", "n_experts": "100000", "top_k": "1"}
    found = validated(table_of(tmp_path, {}, huge | {"step_time_s": ""}, {"seq": "1000000000", "step_time_s": ""}))
    assert found.skipped[0].kind == "no model is so large"
    assert len(found.rows) + len(found.skipped) == 3


def test_no_usable_row_is_an_error_with_the_reasons(tmp_path):
    with pytest.raises(InputError, match=r"no usable row \(2 unknown device; 1 flagged\)"):
        validated(table_of(tmp_path, {"gpu": "x"}, {"gpu": "y"}, {"flag": "z"}))
    with pytest.raises(InputError, match="it has no rows"):
        validated(table_of(tmp_path))


def test_rows_are_written_in_the_order_of_the_file(tmp_path):
    found = validated(table_of(tmp_path, {"flag": 'doubt, "quoted"'}, {"mem_gb": "20"}, {"tp": "16"}, {"id": "=1+1"}))
    lines = rows_csv(found).splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert [line.split(",")[0] for line in lines[1:]] == ["a-1", "a-2", "a-3", "'=1+1"]
    cells = dict(zip(COLUMNS, lines[2].split(","), strict=True))
    assert cells["measured_memory_bytes"] == str(20 * 2**30)
    assert (cells["predicted_fits"], cells["status"], cells["skipped"], cells["lo_step_s"]) == ("true", "ok", "", "")
    assert lines[3].startswith("a-3,,,,,false,0.0,ok")


def test_rows_of_known_configurations_are_counted(tmp_path):
    known = next(each for each in shipped_table().rows if each.id.startswith("playbook-"))
    row = cells(known)
    assert validated(table_of(tmp_path, row, {}), None).known_configurations == 1
    assert validated(table_of(tmp_path, row, {}), "grouped").known_configurations == 0
    assert validation.is_shipped(shipped_table())


def many(tmp_path, rows):
    """A file of runs of two configurations, impossible ones and such that are left out."""
    step = {"step_time_s": "0.{0:02d}"}
    kinds = (step, {"mbs": "2", **step}, {"tp": "3"}, {"gpu": "tpu-v9"}, {"flag": "doubt"})
    said = [{key: value.format(10 + index % 89) for key, value in kinds[index % 5].items()} for index in range(rows)]
    return write_runs(tmp_path / "many.csv", *({"id": f"{'xyz'[index % 3]}-{index}", **row} for index, row in enumerate(said)))


def test_a_file_row_by_row_is_counted_as_a_table_is(tmp_path, monkeypatch):
    """Batches of seven rows; the rows go by in the order of the file; nothing is predicted twice, and nothing is kept."""
    monkeypatch.setattr(validation, "AT_ONCE", 7)
    path, seen, asked, alive = many(tmp_path, 100), [], [], []
    actual = prediction.estimate
    monkeypatch.setattr(prediction, "estimate", lambda *task: (asked.append(task), actual(*task))[1])

    def watch(each):
        seen.append(each.line)
        alive.append(sum(type(one) is validation._Item for one in gc.get_objects()) if len(seen) % 20 == 0 else 0)

    found = validation.tally(open_table(path), scheme=None, fitter=prior_fitter(), legal=refusals, watch=watch)
    assert len(asked) == 2
    assert seen == list(range(2, 102))
    assert max(alive) <= 14
    whole = validated(read_table(path), None)
    assert summarise(found) == summarise(whole)
    assert (len(found.rows), len(found.skipped)) == (len(whole.rows), len(whole.skipped)) == (60, 40)
    assert by_number(found.skipped.kinds) == count_reasons(whole.skipped) == {"flagged": 20, "unknown device": 20}
    assert list(found.skipped) == list(whole.skipped)
    flagged = [each for each in whole.skipped if each.kind == "flagged"]
    assert list(found.skipped.first("flagged")) == flagged[:EXAMPLES]
    stream = io.StringIO(newline="")
    validation.tally(open_table(path), scheme=None, fitter=prior_fitter(), legal=refusals, watch=row_writer(stream))
    assert stream.getvalue() == rows_csv(whole)


def test_a_fit_takes_so_many_runs_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "MAX_RUNS", 3)
    with pytest.raises(InputError, match="a fit takes 3 runs at most: leave --scheme out"):
        validated(table_of(tmp_path, *({"mbs": str(2**index)} for index in range(4))), "in-sample")


def test_names_without_end_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MOST_NAMES", 2)
    monkeypatch.setattr(columns, "LISTED", 3)
    rows = [{"id": name, "framework": name} for name in "abcd"] + [{"id": f"{name}!", "gpu": "x"} for name in "efghi"]
    found = validation.tally(table_of(tmp_path, *rows), scheme=None, fitter=prior_fitter(), legal=refusals)
    summary = summarise(found)
    assert {name: part.scores.n for name, part in summary.frameworks.items()} == {"a": 1, "b": 1, columns.FURTHER: 2}
    assert summary.total.scores.n == 4
    assert sum(part.scores.skipped for part in summary.groups.values()) == len(found.skipped) == 5
    assert len(list(found.skipped)) == 3

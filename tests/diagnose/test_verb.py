"""The verb on logs of our own making: what it infers, finds, compares, writes and refuses."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest
from rich.console import Console

import meshwright as mw
from diagnose.logs import ARGUMENTS, TIMERS, megatron_log
from meshwright.diagnose.redact import redacted
from meshwright.errors import InputError
from meshwright.evidence.rows.table import read_table
from meshwright.report.compare_runs import compare_report
from meshwright.report.diagnose import told_of
from meshwright.report.redacted import blanked
from meshwright.report.terminal import renderables

KEYS = {
    "verdict", "observed", "split", "phases", "expected", "findings", "guides", "hang", "bandwidths", "closest_run", "read", "left",
    "notes", "label",
}
OOM = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 3 has a total capacity of 79.10 GiB of "
    "which 1.00 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
    "unallocated."
)


@pytest.fixture
def log(tmp_path):
    def write(name="run.log", **options):
        path = tmp_path / name
        path.write_text(megatron_log(**options), encoding="utf-8")
        return str(path)

    return write


def asked(*files, **options):
    return mw.diagnose(mw.DiagnoseRequest(files=list(files), **options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A log with its arguments, on a device that is named."""
    path = tmp_path_factory.mktemp("run") / "run.log"
    path.write_text(megatron_log(), encoding="utf-8")
    return asked(str(path), device="a100-80g-sxm")


def test_model_and_layout_are_those_of_the_logs_own_arguments(whole):
    run = whole.diagnosis.run
    assert (run.layout.tensor_parallel, run.layout.pipeline_parallel, run.layout.num_microbatches, run.world) == (2, 4, 4, 8)
    assert (run.case.model.num_layers, run.case.model.hidden, run.case.model.vocabulary) == (8, 1024, 50304)
    assert whole.to_json()["label"] == run.predicted.label


def test_figures_are_those_of_the_steps_that_count(whole):
    view = whole.to_json()
    assert set(view) == KEYS
    json.dumps(view, allow_nan=False)
    assert view["observed"]["step_s"] == pytest.approx(0.56)
    assert (view["observed"]["iterations"], view["observed"]["steady"]) == (8, 7)
    assert view["observed"]["tokens_per_s_per_device"] == pytest.approx(4 * 1024 / 0.56 / 8)
    assert view["split"]["bubble_ratio"] == pytest.approx(0.21 / 0.56)
    assert view["split"]["data_ratio"] == pytest.approx(0.01 / 0.56)
    assert view["expected"]["step"]["interval"][0] < view["expected"]["step"]["predicted_s"]


def test_a_bubble_is_told_with_its_gain_and_its_keys(whole):
    first = whole.to_json()["findings"][0]
    assert (first["id"], first["severity"]) == ("pipeline.bubble", "warning")
    assert first["loss_ratio"] == pytest.approx(0.375)
    assert first["predicted_gain_ratio"] > 0.0
    assert first["change"]
    assert any("--num-layers-per-virtual-pipeline-stage" in each for each in first["remedy"])
    line = first["line"]
    assert "iteration" in megatron_log().splitlines()[line - 1]


def test_a_step_beyond_the_interval_is_slow_and_one_within_it_normal(log):
    predicted = asked(log(), device="a100-80g-sxm").diagnosis.run.predicted
    low, high = (1000.0 * each for each in predicted.interval.step_s)
    verdicts = [
        asked(log(step_ms=step, timers={}), device="a100-80g-sxm").diagnosis.verdict
        for step in (0.5 * low, 0.99 * high, 1.1 * high)
    ]
    assert verdicts == ["normal", "normal", "slow"]


def test_without_a_device_nothing_is_expected_and_why_is_said(log):
    found = asked(log())
    assert (found.diagnosis.verdict, found.diagnosis.expected) == ("unknown", ())
    assert any("--cluster" in str(note) for note in found.notes)
    assert found.diagnosis.run.layout.pipeline_parallel == 4


def test_memory_that_ended_is_a_failed_run(log):
    found = asked(log(extra=OOM))
    assert (found.diagnosis.verdict, found.status) == ("failed", 1)
    first = found.diagnosis.findings[0]
    assert (first.severity, first.id) == ("error", "memory.capacity")
    assert "rank 3" in first.message.words


def test_a_plan_beside_the_log_is_what_it_is_compared_with(log, tmp_path):
    request = mw.PlanRequest(model="llama3-8b", device="h100-sxm", nodes=1, global_batch=64, sequence=4096, top=1)
    mw.plan(
        mw.PlanRequest(
            **{
                **{name: getattr(request, name) for name in ("model", "device", "nodes", "global_batch", "sequence")},
                "save": str(tmp_path / "plan"),
            }
        )
    )
    found = asked(log(arguments={}, timers={}), plan=str(tmp_path / "plan"))
    assert found.diagnosis.run.case.model.name == "llama3-8b"
    assert found.diagnosis.verdict == "normal"


def test_rows_are_read_back_by_the_table_of_runs(log, tmp_path):
    out = tmp_path / "runs.csv"
    found = asked(log(), device="a100-80g-sxm", rows=str(out))
    assert found.saved == str(out)
    (row,) = read_table(out).rows
    assert (row.tensor_parallel, row.pipeline_parallel, row.num_devices, row.device) == (2, 4, 8, "a100-80g-sxm")
    assert row.measured.step_s == pytest.approx(0.56)
    with out.open(newline="", encoding="utf-8") as file:
        (cells,) = csv.DictReader(file)
    assert cells["source"].endswith("run.log")
    with pytest.raises(InputError, match="exists"):
        asked(log("other.log", step_ms=700.0), device="a100-80g-sxm", rows=str(out))
    with pytest.raises(InputError, match="a row needs"):
        asked(log(), rows=str(tmp_path / "none.csv"))


def test_a_picture_is_written_with_what_the_answer_holds(log, tmp_path):
    """Steps that do not count are marked, and of a redacted answer the page holds no more than the answer."""
    out, secret = tmp_path / "run.html", "[rank0]: CUDA out of memory. at /lustre/team/secret on node17.cluster"
    found = asked(log(step_ms=[2000.0, *[560.0] * 8, 1000.0, *[560.0] * 3], extra=secret), device="a100-80g-sxm", html=str(out),
                  redact=True)
    assert found.page == str(out)
    kinds = [each["kind"] for each in found.to_picture()["steps"]]
    assert (kinds[0], kinds[9], kinds.count("steady")) == ("left out", "spike", 11)
    text = out.read_text(encoding="utf-8")
    assert text.count("<svg") == 4, "two charts, for a desk and for a phone"
    assert not any(word in text for word in ("/lustre/team", "node17.cluster", str(tmp_path)))
    with pytest.raises(InputError, match="exists"):
        asked(log("other.log", step_ms=700.0), device="a100-80g-sxm", html=str(out))


def test_long_runs_are_drawn_by_some_of_their_steps(log):
    times = [560.0] * 5000
    times[3333] = 2000.0
    drawn = asked(log(step_ms=times, timers={}, arguments={})).to_picture()["steps"]
    assert len(drawn) <= 2001
    assert [each["number"] for each in drawn if each["kind"] == "spike"] == [3334]


def test_hosts_keys_and_paths_are_blanked(log):
    secret = "[rank0]: CUDA out of memory. HF_TOKEN=hf_abcdefghijkl at /lustre/team/run on node17.cluster"
    text = json.dumps(asked(log(extra=secret), redact=True).to_json())
    assert not any(word in text for word in ("hf_abc", "/lustre", "node17", "run.log"[:0] or "hf_abcdefghijkl"))


@pytest.mark.parametrize("said", ["[{}] saving", "({})", "{}:4242", "on {}", '"{}"', "{}, rank 3", "<{}>", "{}|TP=0", "{}/rank0"])
def test_a_host_is_blanked_whatever_stands_around_it(said):
    assert "gpu-a17" not in redacted(said.format("gpu-a17"))


def test_the_host_in_front_of_nccls_lines_is_blanked_whatever_its_name():
    assert redacted("r7i7n3:4035:4411 [0] NCCL WARN failed") == "HOST:4035:4411 [0] NCCL WARN failed"


def test_no_part_of_a_report_keeps_what_is_blanked(log):
    """The causes of a comparison stand in a table, whose cells were shown as they were."""
    secret = {"recompute_granularity": "/lustre/team/secret/run", "overlap_grad_reduce": "node17.cluster"}
    timers = TIMERS | {"forward-compute": 240.0}
    runs = [log("a.log"), log("b.log", step_ms=700.0, timers=timers, arguments=ARGUMENTS | secret)]

    def shown(parts):
        console = Console(width=300, file=io.StringIO())
        console.print(*parts)
        return console.file.getvalue()

    compared = mw.compare(mw.CompareRequest(runs=runs, redact=True))
    assert "/lustre/team" in shown(compare_report(compared))
    alone = asked(runs[1], device="a100-80g-sxm", redact=True)
    for text in (shown(blanked(compare_report(compared))), shown(renderables(told_of(alone)))):
        assert not any(word in text for word in ("/lustre/team", "node17.cluster"))


def test_a_rank_that_computes_nothing_is_compared_with_nobody(tmp_path):
    (tmp_path / "steps.csv").write_text(
        "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"
        "1,rank,0,9,1,0,1,2\n1,rank,1,0,1,0,1,9\n"
    )
    (tmp_path / "kernels.csv").write_text("Name,Accelerator Core,Start Time(us),Duration(us)\n" + "Add,AI_CORE,0,9\n" * 50)
    view = asked(tmp_path).to_json()
    assert not any(each["id"] == "ranks.uneven" for each in view["findings"])
    assert next(each["loss_ratio"] for each in view["findings"] if each["id"] == "kernels.small") <= 1.0


def test_only_short_kernels_of_compute_are_evidence_that_kernels_are_too_short(tmp_path):
    """An exchange of 4 ms and a kernel of 42 us were named as kernels under 10 us."""
    rows = ["Add,AI_CORE,0,5"] * 60 + ["MatMul,AI_CORE,0,90", "hcom_allReduce_,COMMUNICATION,0,4000"]
    (tmp_path / "kernels.csv").write_text("Name,Accelerator Core,Start Time(us),Duration(us)\n" + "\n".join(rows) + "\n")
    findings = {each["id"]: each for each in asked(tmp_path).to_json()["findings"]}
    assert [each["text"].partition(":")[0] for each in findings["kernels.small"]["evidence"]] == ["Add"]


def test_a_bound_of_communication_is_open_where_timers_hold_only_some_of_it(log):
    """Under tensor parallelism 0.0 % was said to keep the guide's 20 %."""
    def bounds(**options):
        answer = asked(log(**options), device="a100-80g-sxm")
        view = answer.to_json()["guides"]
        return [(each["holds"], each["observed_ratio"]) for each in view if "communication" in each["rule"]], told_of(answer)

    timers = {"forward-compute": 100.0, "backward-compute": 200.0, "all-grads-sync": 28.0}
    alone = ARGUMENTS | {"tensor_model_parallel_size": "1", "pipeline_model_parallel_size": "1", "global_batch_size": "8"}
    open_, told = bounds(timers=timers)
    assert open_ == [(None, pytest.approx(0.05))] * 2
    console = Console(width=200, file=io.StringIO())
    console.print(*renderables(told))
    assert "open   communication at most 20 % of the step: at least 5.0 %" in console.file.getvalue()
    assert bounds(timers=timers, arguments=alone)[0] == [(True, pytest.approx(0.05))] * 2
    assert [holds for holds, _ in bounds(timers=timers | {"all-grads-sync": 200.0})[0]] == [False] * 2
    assert bounds(timers={"forward-compute": 100.0, "backward-compute": 200.0})[0] == [(None, None)] * 2


def test_two_runs_are_compared_by_part_and_setting(log):
    slow = log(
        "b.log", step_ms=700.0, timers=TIMERS | {"forward-compute": 240.0}, arguments=ARGUMENTS | {"recompute_granularity": "full"}
    )
    view = mw.compare(mw.CompareRequest(runs=[log("a.log"), slow])).to_json()
    assert view["step_change_ratio"] == pytest.approx(0.25)
    compute = next(each for each in view["parts"] if each["part"] == "compute")
    assert "recompute_granularity unset -> full" in compute["why"]
    assert [each["key"] for each in view["settings_changed"]] == ["recompute_granularity"]
    same = next(each for each in view["parts"] if each["part"] == "bubble")
    assert same["why"] == "the same"


def test_a_part_that_changed_without_a_setting_has_no_cause(log):
    slow = log("b.log", step_ms=700.0, timers=TIMERS | {"forward-compute": 240.0})
    parts = mw.compare(mw.CompareRequest(runs=[log("a.log"), slow])).to_json()["parts"]
    assert "no setting" in next(each["why"] for each in parts if each["part"] == "compute")


def test_following_ends_with_the_run_and_tells_what_changed(log):
    told = []
    path = log(extra=OOM)
    answer = mw.diagnose(mw.DiagnoseRequest(files=[path], follow=True), told=told.append)
    assert [each.diagnosis.verdict for each in told] == ["failed"]
    assert answer.diagnosis.verdict == "failed"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "FILE is missing"),
        ({"files": ["nothing.log"]}, "no such file"),
        ({"files": ["x"], "window": "9:3"}, "ends before it begins"),
        ({"files": ["x"], "window": "a:b"}, "no A:B"),
        ({"files": ["x"], "plan": "p", "from_": "megatron"}, "one of the two"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(options, words):
    with pytest.raises(InputError, match=words):
        mw.diagnose(mw.DiagnoseRequest(**options))


@pytest.mark.parametrize(("options", "words"), [
    ({"model": "nope"}, "unknown model"), ({"device": "nope"}, "unknown device"), ({"from_": "nope"}, "unknown framework"),
    ({"plan": "nope.yaml"}, "no such file"),
])
def test_what_an_option_names_must_be_there(log, options, words):
    """A run without a case is read as well, but not because a name was misspelt; other faults are told beside it."""
    with pytest.raises(InputError, match=words) as caught:
        asked(log(), "missing.log", **options)
    assert any("missing.log" in str(each) for each in caught.value.messages)


def test_a_file_of_nothing_and_an_empty_directory_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of a run\n", encoding="utf-8")
    for each in (tmp_path / "notes.txt", tmp_path, tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(InputError):
            asked(str(each))


def test_an_archive_that_breaks_off_is_read_to_there_and_said_so(tmp_path):
    whole = gzip.compress(megatron_log(steps=200, step_ms=[500.0 + 7 * (number % 31) for number in range(200)]).encode())
    path = tmp_path / "run.log.gz"
    path.write_bytes(whole[: len(whole) // 2])
    view = asked(str(path)).to_json()
    assert 10 < view["observed"]["iterations"] < 200
    assert any("breaks off" in each["why"] for each in view["left"])


def test_one_run_is_not_compared():
    with pytest.raises(InputError, match="two runs"):
        mw.compare(mw.CompareRequest(runs=["a"]))

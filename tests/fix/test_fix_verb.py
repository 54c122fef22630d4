"""``fix`` on the command line: the shows of the issue, what --apply does to files, and bad input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from oom_files import BRIDGE, CHATLEARN, FIRST_STAGE, FRAGMENTS, GRPO, IN_FLIGHT, LAST_STAGE, LOGITS, MEGATRON

from meshwright.api.verbs.fix import FixRequest
from meshwright.cli import main
from oom_texts import GIB

ONE = ["--max-edits", "1"]


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def fix(capfd):
    def call(*arguments, verb="fix"):
        status = main([verb, *arguments])
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        assert "internal error" not in captured.err
        return Answer(status, captured.out, captured.err)

    return call


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.sh"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def moved(change):
    return [move.split()[0] for move in change["moves"]]


# The shows.


def test_a_last_stage_that_runs_out_in_its_logits(fix, script):
    answer = fix(script(LAST_STAGE), *MEGATRON, "--oom", LOGITS, "--json", *ONE)
    assert answer.status == 0
    view = answer.json
    seen = view["out_of_memory"]
    assert (seen["kind"], seen["rank"], seen["ranks"], seen["stage"], seen["phase"]) == ("transient", 13, [13, 15], 3, "loss")
    assert view["extra_bytes"] > 4 * GIB, "the run needed more than the prediction: it is lifted"
    assert ["mb"] in [moved(change) for change in view["changes"]]
    layers = next(change for change in view["changes"] if moved(change) == ["layers"])
    assert layers["stages"][3]["layers"] < 12, "fewer layers where the logits are"
    assert layers["diff"].count("\n-") >= 2, "the flags of the ends go, or change"
    for change in view["changes"]:
        stage = next(each for each in change["stages"] if each["stage"] == max(one["stage"] for one in change["stages"]))
        assert stage["memory_reserved_bytes"] + view["extra_bytes"] <= view["bound_bytes"] * (1 + 1e-12)
        assert change["fits"] is True
        assert change["margin_bytes"] >= 0
    assert any("--cross-entropy-loss-fusion" in line for line in view["advice"])
    assert any("do not make them smaller" in line for line in view["advice"])


def test_a_first_stage_that_runs_out_of_micro_batches_in_flight(fix, script):
    answer = fix(script(FIRST_STAGE), *MEGATRON, "--oom", IN_FLIGHT, "--json", *ONE)
    view = answer.json
    assert answer.status == 0
    assert (view["out_of_memory"]["kind"], view["out_of_memory"]["stage"]) == ("capacity", 0)
    assert view["extra_bytes"] == 0.0, "the prediction says already that it is more"
    assert (
        max(each["memory_reserved_bytes"] for each in view["base"]["stages"]) == view["base"]["stages"][0]["memory_reserved_bytes"]
    )
    assert all(change["memory_reserved_bytes"] <= view["bound_bytes"] for change in view["changes"])
    smaller = next(change for change in view["changes"] if moved(change) == ["mb"])
    assert smaller["edits"] == [
        {"field": "--micro-batch-size", "from": 2, "to": 1, "file": smaller["edits"][0]["file"],
         "line": FIRST_STAGE[: FIRST_STAGE.index("--micro-batch-size")].count("\n") + 1, "resume": "same checkpoint"},
    ]


def test_a_packing_limit_that_is_too_high(fix, script):
    answer = fix(script(GRPO.format(limit=65536), "grpo.yaml"), *CHATLEARN, "--json", *ONE)
    view = answer.json
    assert answer.status == 0
    first = view["changes"][0]
    (edit,) = first["edits"]
    assert edit["field"] == "models.policy_trainer.max_token_in_packing"
    assert edit["from"] == 65536
    assert edit["to"] % 1024 == 0
    assert 3072 < edit["to"] < 65536
    assert first["resume"] == "same checkpoint"
    assert first["memory_reserved_bytes"] <= view["bound_bytes"] < view["base"]["memory_reserved_bytes"]
    assert "-    max_token_in_packing: 65536   # few, large micro-batches" in first["diff"]
    assert f"+    max_token_in_packing: {edit['to']}   # few, large micro-batches" in first["diff"]


def test_the_ladder_of_llama_3_70b_after_a_message_of_fragmentation(fix):
    """Measured: expandable segments 0 %, PP 8 -5.9 %, mlp recomputed -16 %, TP 8 -28.4 % (docs/sources.md,
    minimal-change repair)."""
    view = fix(*BRIDGE, "--oom", FRAGMENTS, "--json", "--top", "20").json
    first, *others = view["changes"]
    assert [(edit["field"], edit["to"]) for edit in first["edits"]] == [("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]
    assert (first["step_change_ratio"], first["fits"]) == (0.0, True)
    steps = {change["moves"][0]: change["step_s"] for change in others if len(change["moves"]) == 1}
    ladder = [steps[word] for word in ("pp 4 -> 8", "recompute none -> selective:mlp", "tp 4 -> 8")]
    assert ladder == sorted(ladder)


# Words.


def test_the_report_says_what_was_seen_what_it_costs_and_how_far_was_looked(fix, script):
    answer = fix(script(LAST_STAGE), *MEGATRON, "--oom", LOGITS, *ONE)
    for words in ("rank 13 (first of 2)", "stage 3", "transient:", "capacity:", "same checkpoint", "--- a/",
                  "memory by stage, before", "a run that resumes", "searched: every combination of up to 1 edit",
                  "complete"):
        assert words in answer.out
    assert "\x1b" not in answer.out


def test_another_change_is_shown_on_demand(fix, script):
    answer = fix(script(FIRST_STAGE), *MEGATRON, "--change", "2", *ONE)
    assert "Change 2" in answer.out


def test_nothing_to_fix_is_no_failure(fix):
    answer = fix("llama3-8b", "--device", "h100-sxm", "--devices", "8", "--global-batch", "64", "--sequence", "4096", "--layout",
                 "tp2 mb1 sp zero1")
    assert answer.status == 0
    assert "nothing to fix" in answer.out


def test_what_no_layout_helps_against_exits_with_1_and_says_what_does(fix):
    answer = fix(*BRIDGE, "--oom", "slurmstepd: error: Detected 1 oom_kill event in StepId=31.0.")
    assert answer.status == 1
    assert "host:" in answer.out
    assert "more memory for the job" in " ".join(answer.out.split())


def test_a_bound_that_nothing_keeps_names_the_nearest(fix):
    answer = fix(*BRIDGE, "--memory", "5GiB", "--json", *ONE)
    assert answer.status == 1
    view = answer.json
    assert view["changes"] == []
    assert view["nearest"]["unit"] == "B"
    assert view["nearest"]["missing"] > 0
    assert "nearest:" in fix(*BRIDGE, "--memory", "5GiB", *ONE).out


def test_levers_are_judged_by_the_wish_and_name_options_that_are_there(fix):
    """The whole device was offered as a lever of 53.8 GiB against a wish of 1 GB, and ``--pin``, which ``fix`` does not have."""
    answer = fix("llama3-8b", "--device", "h100-sxm", "--nodes", "2", "--global-batch", "64", "--sequence", "4096", "--layout",
                 "tp2 mb1 sp zero1", "--memory", "6GB", "--json", *ONE)
    levers = answer.json["levers"]
    fitting = [float(each.split(": fits, ")[1].split(" GiB")[0]) for each in levers if ": fits, " in each]
    assert max(fitting) <= 6e9 / GIB + 0.05  # as printed, to a tenth
    options = {word for each in levers for word in each.split(" (")[1].split(")")[0].split() if word.startswith("--")}
    assert options
    assert options - {"--pin"} <= {f"--{field.name.replace('_', '-')}" for field in FixRequest.FIELDS}
    assert all("(plan --pin" in each for each in levers if "--pin" in each)


def test_a_saved_plan_stands_where_files_stand(fix, tmp_path):
    case = ["llama3-8b", "--device", "h100-sxm", "--devices", "8", "--global-batch", "64", "--sequence", "4096"]
    assert fix(*case, "--top", "1", "--pin", "tp=2", "--save", str(tmp_path / "t"), verb="plan").status == 0
    plan = str(tmp_path / "t" / "plan.yaml")
    words = ("--memory", "32GiB", "--json", *ONE)
    by_name, by_option = fix(plan, *words).json, fix("--request", plan, *words).json
    assert by_name["changes"]
    assert by_name["changes"] == by_option["changes"]


def test_wishes_beside_memory(fix):
    base = ["llama3-8b", "--device", "h100-sxm", "--devices", "16", "--global-batch", "64", "--sequence", "4096", "--json", *ONE]
    slow = fix(*base, "--layout", "tp8 mb1 sp zero1", "--faster", "10%").json
    assert slow["changes"]
    assert all(change["step_s"] <= slow["base"]["step_s"] / 1.1 for change in slow["changes"])
    fewer = fix(*base, "--layout", "tp2 mb1 sp zero1", "--to-devices", "8").json
    assert fewer["wish"] == "run on 8 devices"
    assert all(change["label"] and change["fits"] for change in fewer["changes"])


def test_data_parallelism_alone_may_follow_the_devices(fix):
    base = ["llama3-8b", "--device", "h100-sxm", "--devices", "16", "--global-batch", "128", "--sequence", "8192", *ONE]
    answer = fix(*base, "--layout", "tp2 pp2 mb1 sp zero1", "--to-devices", "8", "--json")
    assert answer.status == 0
    (change,) = answer.json["changes"]
    assert (change["moves"], change["edits"], change["fits"]) == (["dp 4 -> 2"], [], True)
    assert "dp 4 -> 2" in fix(*base, "--layout", "tp2 pp2 mb1 sp zero1", "--to-devices", "8").out


@pytest.mark.parametrize("wish", [["--fit"], ["--memory", "60GB"], ["--to-devices", "16"]])
def test_what_is_so_already_is_no_failure(fix, wish):
    base = ["llama3-8b", "--device", "h100-sxm", "--devices", "16", "--global-batch", "128", "--sequence", "8192", *ONE]
    answer = fix(*base, "--layout", "tp2 pp2 mb1 sp zero1", *wish)
    assert (answer.status, "nothing to change" in answer.out) == (0, True)


def test_a_broken_rule_is_a_wish_of_its_own(fix, script):
    text = FIRST_STAGE.replace("--micro-batch-size 2 --global-batch-size 128", "--micro-batch-size 1 --global-batch-size 120")
    text = text.replace(
        "--pipeline-model-parallel-size 4 ", "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 "
    )
    view = fix(script(text), *MEGATRON, "--json", *ONE).json
    assert any("remainder of M" in line for line in view["broken"]), "30 micro-batches on 4 interleaved stages"
    assert view["wish"].startswith("keep every rule")
    assert view["changes"]
    path = script(text, "again.sh")
    assert fix(path, *MEGATRON, "--apply", *ONE).status == 0
    after = fix(path, *MEGATRON, "--json", verb="check").json
    assert "megatron.interleaved-batch" not in {each["id"] for each in after["findings"]}


def test_a_legal_layout_that_does_not_fit_is_said_not_to(fix):
    arguments = ["qwen3-30b-a3b", "--device", "h100-sxm", "--devices", "16", "--global-batch", "128", "--sequence", "8192",
                 "--layout", "tp2 ep4 mb1 zero1"]
    view = fix(*arguments, "--json").json
    assert view["base"] is None
    by_words = {change["moves"][0]: change for change in view["changes"]}
    assert by_words["sp off -> on"]["fits"] is False
    assert any(change["fits"] for change in view["changes"])
    answer = fix(*arguments, "--oom", FRAGMENTS)
    assert "the message is left aside" in " ".join(answer.out.split())


# What --apply does.


def test_what_is_applied_reads_back_as_proposed_and_comments_stay(fix, script):
    path = script(LAST_STAGE)
    Path(path).chmod(0o755)
    view = fix(path, *MEGATRON, "--oom", LOGITS, "--apply", "--json", *ONE).json
    assert view["applied"] == [path]
    after = Path(path).read_text()
    assert Path(path).stat().st_mode & 0o777 == 0o755
    kept = set(LAST_STAGE.splitlines()) - set(after.splitlines())
    assert len(kept) <= 3, "all other lines are what they were"
    assert "# four stages" in after
    read = fix(path, "--from", "megatron", "--model", "llama3-8b", "--json", verb="import").json
    assert read["label"] == view["changes"][0]["label"]


def test_a_variable_and_a_layout_are_applied_together_or_apart(fix, script):
    message = FRAGMENTS.replace("[rank3]", "[rank0]")
    path = script(FIRST_STAGE.replace("--micro-batch-size 2", "--micro-batch-size 1"))
    view = fix(path, *MEGATRON, "--oom", message, "--apply", "--json", *ONE).json
    assert [edit["field"] for edit in view["changes"][0]["edits"]] == ["PYTORCH_CUDA_ALLOC_CONF"]
    assert "\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in Path(path).read_text()
    again = fix(path, *MEGATRON, "--oom", message, "--json", *ONE).json
    assert all("PYTORCH_CUDA_ALLOC_CONF" not in [edit["field"] for edit in change["edits"]] for change in again["changes"])
    assert any("on already" in line for line in again["remarks"])


def test_windows_line_ends_and_byte_order_marks_stay(fix, tmp_path):
    path = tmp_path / "train.sh"
    path.write_bytes(b"\xef\xbb\xbf" + FIRST_STAGE.replace("\n", "\r\n").encode())
    assert fix(str(path), *MEGATRON, "--apply", *ONE).status == 0
    after = path.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf#!/bin/bash\r\n")
    assert after.count(b"\n") == after.count(b"\r\n")


def test_the_words_that_a_script_is_called_with_do_not_get_into_it(fix, script):
    path = script(
        FIRST_STAGE.replace("--micro-batch-size 2", "--micro-batch-size ${MB}").replace("#!/bin/bash\n", "#!/bin/bash\nMB=$1\n")
    )
    view = fix(path, *MEGATRON, "--arguments", "2 more", "--json", *ONE).json
    for change in view["changes"]:
        assert "set --" not in change["diff"]
        assert change["diff"] or change["by_hand"]


def test_what_has_to_be_done_by_hand_is_not_half_applied(fix, script):
    path = script(
        FIRST_STAGE.replace("--micro-batch-size 2", "--micro-batch-size ${MB}").replace("#!/bin/bash\n", "#!/bin/bash\nMB=$1\n")
    )
    before = Path(path).read_text()
    view = fix(path, *MEGATRON, "--arguments", "2", "--json", *ONE).json
    hand = next(place for place, change in enumerate(view["changes"], start=1) if change["by_hand"])
    answer = fix(path, *MEGATRON, "--arguments", "2", "--apply", "--change", str(hand), *ONE)
    assert answer.status == 2
    assert "by hand" in answer.err
    assert Path(path).read_text() == before


def test_only_the_launcher_may_be_left_to_do_by_hand(fix, script):
    path = script(FIRST_STAGE)
    view = fix(path, *MEGATRON, "--to-devices", "8", "--apply", "--json", *ONE).json
    assert view["applied"] == [path]
    (message,) = view["changes"][0]["by_hand"]
    assert "change the launcher" in message
    read = fix(path, "--from", "megatron", "--model", "llama3-8b", "--devices", "8", "--json", verb="import").json
    assert read["label"] == view["changes"][0]["label"]


def test_one_replica_keeps_the_switches_of_several(fix, script):
    path = script(FIRST_STAGE)
    assert "--use-distributed-optimizer" in FIRST_STAGE
    one = fix(path, *MEGATRON, "--to-devices", "4", "--json", *ONE).json["changes"][0]
    assert "dp" not in one["label"].replace("dp1", "")
    assert "--use-distributed-optimizer" not in one["diff"]
    assert [message for message in one["by_hand"] if "launcher" not in message] == []


def test_figures_of_edits_are_numbers(fix, script):
    view = fix(script(FIRST_STAGE), *MEGATRON, "--fit", "--json", *ONE).json
    edits = [edit for change in view["changes"] for edit in change["edits"]]
    figures = [edit for edit in edits if edit["field"] in {"--micro-batch-size", "--pipeline-model-parallel-size"}]
    assert figures
    assert all(isinstance(edit[side], int) for edit in figures for side in ("from", "to"))


def test_more_memory_than_a_device_has_is_said_to_be_cut(fix, script):
    path = script(FIRST_STAGE)
    view = fix(path, *MEGATRON, "--memory", "100GiB", "--json", *ONE).json
    assert view["bound_bytes"] < 80 * 2**30
    assert any(line.startswith("--memory 100.0 GiB is more than the") for line in view["remarks"])
    assert not any("--memory" in line for line in fix(path, *MEGATRON, "--memory", "60GiB", "--json", *ONE).json["remarks"])


def test_virtual_memory_is_not_offered_where_the_framework_excludes_it(fix, script):
    path = script(FIRST_STAGE.replace("--micro-batch-size 2", "--use-nccl-ub --micro-batch-size 1"))
    view = fix(path, *MEGATRON, "--oom", FRAGMENTS.replace("[rank3]", "[rank0]"), "--json", *ONE).json
    assert all("expandable" not in str(change["moves"]) for change in view["changes"])
    assert any("--use-nccl-ub registers buffers" in line for line in view["remarks"])


def test_a_read_only_file_is_left_alone(fix, script):
    path = script(FIRST_STAGE)
    Path(path).chmod(0o444)
    answer = fix(path, *MEGATRON, "--apply", *ONE)
    assert (answer.status, "is read-only" in answer.err) == (2, True)
    assert Path(path).read_text() == FIRST_STAGE


def test_a_link_stays_a_link(fix, script, tmp_path):
    target = script(FIRST_STAGE, "real.sh")
    link = tmp_path / "link.sh"
    link.symlink_to(target)
    assert fix(str(link), *MEGATRON, "--apply", *ONE).status == 0
    assert link.is_symlink()
    assert Path(target).read_text() != FIRST_STAGE


# Bad input.

BAD = {
    "empty message": (["--oom", "   "], "is empty"),
    "no message": (["--oom", "iteration 5 of 10 went well"], "holds no out-of-memory message"),
    "missing log": (["--oom", "nowhere.log"], "no such file"),
    "directory": (["--oom", "/"], "not a regular file"),
    "two wishes": (["--faster", "10%", "--to-devices", "8"], "one wish at a time"),
    "memory and devices": (["--memory", "60GB", "--to-devices", "8"], "one wish at a time"),
    "no size": (["--memory", "much"], "no size in bytes"),
    "no gain": (["--faster", "-3%"], "above zero"),
    "many edits": (["--max-edits", "9"], "at most 6"),
    "no such change": (["--change", "400"], "none is number 400"),
    "apply without files": (["--apply"], "--apply: changes files"),
    "from and layout": (["--from", "megatron"], "one of the two"),
    "arguments without files": (["--arguments", "8"], "there is none with --layout"),
    "wrong layout": (["--layout", "tp5 pp3"], "layout"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_exit_2(fix, kind):
    arguments, words = BAD[kind]
    answer = fix(*BRIDGE, *arguments, *(ONE if kind != "many edits" else []))
    assert answer.status == 2
    assert words in answer.err
    assert all(line.startswith("error: ") for line in answer.err.splitlines())


def test_bad_files_are_refused(fix, script, tmp_path):
    for arguments in (
        [script("a: [1, 2", "broken.yaml"), "--from", "chatlearn"],
        [script(FIRST_STAGE), "--from", "nanotron"],
        [script(FIRST_STAGE), "--from", "megatro"],
        [str(tmp_path / "missing.sh"), *MEGATRON],
        [script(FIRST_STAGE), "--from", "megatron"],
        [script(FIRST_STAGE)],
        [],
    ):
        answer = fix(*arguments)
        assert answer.status == 2, arguments
        assert answer.err.startswith("error: ")


def test_a_message_without_figures_still_says_that_all_of_the_device_was_not_enough(fix):
    view = fix(*BRIDGE, "--oom", "RuntimeError: CUDA error: out of memory", "--json", *ONE).json
    assert view["out_of_memory"]["kind"] == "outside the allocator"
    assert view["out_of_memory"]["stage"] is None
    assert view["changes"]


def test_a_message_of_another_device_is_remarked(fix):
    from oom_texts import modern

    message = modern(2 * GIB, 39.4 * GIB, GIB, 37 * GIB, GIB)
    view = fix(*BRIDGE, "--oom", message, "--json", *ONE).json
    assert any("of a device with 39.4 GiB" in line for line in view["remarks"])


def test_standard_input_is_a_message_too(fix, monkeypatch, tmp_path):
    import io
    import sys

    class Stdin:
        buffer = io.BytesIO(FRAGMENTS.encode())

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert fix(*BRIDGE, "--oom", "-", "--json", *ONE).json["out_of_memory"]["kind"] == "fragmentation"


def test_a_plan_without_a_layout_is_not_asked_for_files(fix, tmp_path):
    """What is wrong with it is said, and nothing else is missing."""
    plan = tmp_path / "plan.yaml"
    request = "{model: llama3-8b, device: h100-sxm, nodes: 1, global_batch: 64, sequence: 4096}"
    plan.write_text(f"meshwright_plan: 1\nrequest: {request}\nlayout: {{tp: 2}}\n", encoding="utf-8")
    answer = fix(str(plan), "--memory", "30GB")
    assert answer.status == 2
    assert [line for line in answer.err.splitlines() if line.startswith("error:")] == [
        f"error: {plan}: layout: holds keys with values: a plan has its label there"
    ]

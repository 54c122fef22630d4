"""What logs of each framework say, in a few lines of each."""

# ruff: noqa: E501

from __future__ import annotations

import pytest
from tests.readers import log_texts

from meshwright.domain.observed import Bandwidths, Hanging
from meshwright.readers.formats import observe
from meshwright.readers.logs.parts import PARTS, part_of, split
from meshwright.units import GIB, MIB, TERA


@pytest.fixture
def log(tmp_path):
    def read(text, format=""):
        path = tmp_path / "a.log"
        path.write_text(text, newline="")
        return next(each for each in observe([path]).observations if format in each.format)
    return read


def test_megatron(log):
    said = log(log_texts.MEGATRON)
    first, second = said.steps
    assert (first.number, first.step_s, first.averaged, first.sequences, first.skipped, first.line) == (10, 15.8, 10, 64, 2, 9)
    assert first.model_flops_per_s_per_device == 490 * TERA
    assert first.parts == {"forward-backward": 12.5, "optimizer": 3.1}
    assert first.least == {"forward-backward": 12.0, "optimizer": 3.0}
    assert (second.number, second.step_s, second.loss) == (20, 15.6, 9.1), "wrapped over three lines"
    assert second.at_s - first.at_s == 158.0
    assert (said.world, said.sequence_tokens, said.settings["num_layers"], said.settings["pipeline_model_parallel_size"]) == (16, 2048, "40", "4")
    assert [(each.rank, each.max_reserved_bytes) for each in said.memory] == [(7, 29316 * MIB), (6, 29312 * MIB)], "two on a line"
    assert [(each.name, each.most_s) for each in said.timers] == [
        ("model-and-optimizer-setup", 0.33626), ("train/valid/test-data-iterators-setup", 0.66292), ("save-checkpoint", 24.89513)]


def test_megatron_of_2021_may_print_no_timer(log):
    first, second = log(log_texts.MEGATRON_2021).steps
    assert split(first.parts) == pytest.approx({"forward": 0.59, "receive": 0.1, "backward": 0.9, "optimizer": 0.2, "data": 0.01})
    assert second.parts == {}


@pytest.mark.parametrize(("text", "number", "step_s", "sequences"), [
    ("Training epoch 0, iteration 5/99 | lr: 0.00015 | global_batch_size: 128 | global_step: 5 | reduced_train_loss: 11.03 | train_step_timing in s: 6.92", 5, 6.92, 128),
    ("0: [2026-01-01 00:00:00] iteration 7/ 9 | elapsed time per iteration (ms): 1500.0/1600.0 | global batch size: 8", 7, 1.5, 8),
    ("  iteration=       3/  99 | consumed_samples=  24 | elapsed_time_per_iteration_ms=250.5 | global_batch_size=8 |", 3, 0.2505, 8),
    ("[1,15]<stdout>: iteration 4/9 | consumed samples: 4 | elapsed time per iteration (ms): 2.5 | global batch size: 1 |", 4, 0.0025, 1),
])
def test_dialects_of_megatron(log, text, number, step_s, sequences):
    step = log(text).steps[0]
    assert (step.number, step.step_s, step.sequences) == (number, step_s, sequences)


def test_every_rank_s_timers(log):
    text = " iteration 3/ 9 | elapsed time per iteration (ms): 50.0 |\ntimes across ranks (ms):\n  forward-compute:\n     rank  0: 12.50\n     rank  1: 17.50\n"
    step = log(text).steps[0]
    assert (step.parts, step.least) == ({"forward-compute": 0.0175}, {"forward-compute": 0.0125})


def test_torchtitan_steps_of_several_ranks_count_once(log):
    said = log(log_texts.TORCHTITAN)
    assert [(step.number, step.averaged, step.tokens_per_s_per_device, step.mfu_ratio) for step in said.steps] == [
        (10, 10, 8192.0, pytest.approx(0.1399)), (20, 10, 4096.0, None)]
    assert (said.world, said.sequence_tokens, said.steps[0].sequences) == (8, 8192, 16)
    assert [step.step_s for step in said.steps] == [2.0, 4.0], "16 x 8192 tokens over 8 ranks at the rate"
    assert said.steps[0].memory_bytes == 67.0 * GIB, "of ranks the most"
    assert [(sign.id, sign.value, sign.rank) for sign in said.signs] == [("allocator.retries", 37.0, 0)]


def test_torchtitan_seconds_by_the_clock(log):
    text = "\n".join(line for line in log_texts.TORCHTITAN.splitlines() if "step:" in line)
    first, second = log(text).steps
    assert (first.step_s, second.averaged) == (None, 10)
    assert second.step_s == pytest.approx(0.1637)


def test_nanotron_in_both_spellings(log):
    older, newer = log(log_texts.NANOTRON), log(log_texts.NANOTRON_NEWER)
    assert (older.steps[0].step_s, older.world, older.steps[0].sequences, older.sequence_tokens) == (11.5, 2, 64, 4096)
    assert (newer.steps[0].step_s, newer.world, newer.steps[0].sequences, newer.steps[0].tokens) == (1.04, 8, None, 1_050_000)


def test_deepspeed_counts_a_step_once_and_no_micro_step(log):
    said = log(log_texts.DEEPSPEED)
    assert len(said.steps) == 1
    step = said.steps[0]
    assert step.step_s == pytest.approx(1.83978)
    assert split(step.parts) == pytest.approx({"forward": 0.43567, "backward": 0.514, "gradient_reduce": 0.23011, "optimizer": 0.66}, abs=1e-3)
    assert said.settings["train_batch_size"] == "64"


def test_deepspeed_throughput_alone(log):
    text = "\n".join(line for line in log_texts.DEEPSPEED.splitlines() if "time (ms)" not in line)
    assert [(step.number, step.step_s, step.sequences) for step in log(text).steps] == [(10, 2.0, 64)]


def test_collectives_of_deepspeed_are_in_bits(log):
    said = log(log_texts.COMMS)
    assert isinstance(said, Bandwidths)
    one, mean = said.rows
    assert (one.operation, one.message_bytes, one.time_s, one.bus_bytes_per_s) == (
        "reduce_scatter_tensor", 678.86 * MIB, pytest.approx(0.00946), pytest.approx(1129.23e9 / 8))
    assert (mean.operation, mean.message_bytes, mean.count, mean.time_s) == ("broadcast", 2048, 146, pytest.approx(8e-5))


def test_trainer_reports_once_though_each_rank_prints(log):
    said = log(log_texts.TRAINER)
    assert said.figures["train_runtime_s"] == 919.097
    assert [(step.number, step.step_s) for step in said.steps] == [(1, 58.76), (2, 59.61)]
    assert (said.world, said.steps[1].loss, said.steps[1].sequences) == (8, 2.31, 64)


def test_loops_that_print_as_nanogpt(log):
    first, second = log(log_texts.NANOGPT).steps
    assert (first.number, first.step_s, first.mfu_ratio, first.tokens) == (1631, pytest.approx(0.56194), pytest.approx(0.3852), 491_520)
    assert second.mfu_ratio is None, "minus 100 % is no figure"


def test_maxtext_knows_its_devices_by_its_tokens(log):
    assert log(log_texts.MAXTEXT).world == 4


def test_mindformers(log):
    first, second = log(log_texts.MINDSPORE).steps
    assert (first.step_s, second.step_s, second.skipped, second.model_flops_per_s_per_device) == (103.328, 1.752, 1, 170.738 * TERA)


def test_chatlearn(log):
    step = log(log_texts.CHATLEARN).steps[0]
    assert (step.number, step.step_s, step.parts["policy_trainer_train_step"]) == (3, 123.45, 30.1)


def test_the_watchdog_says_who_waits_and_who_never_came(log):
    said = log(log_texts.WATCHDOG, "watchdog")
    assert isinstance(said, Hanging)
    assert [(each.rank, each.group, each.sequence, each.operation, each.elements_in, each.timeout_s) for each in said.entries] == [
        (0, "1", 1580, "ALLREDUCE", 466119168, 600.0)]
    assert [(each.rank, each.last_enqueued, each.last_completed) for each in said.progress] == [(0, 1582, 1579), (3, 1579, 1579)]


@pytest.mark.parametrize(("text", "rank", "enqueued", "completed", "group"), [
    ("[rank2]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 2] Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work:"
     " 76280750235782912.", 2, 1, None, "0"),
    ("[rank9]:[E] [PG ID 2 PG GUID 5(tp) Rank 1]  failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 5,"
     " last completed work: 4", 9, 5, 4, "5(tp)"),
    ("[Rank 5] PG ID 3: last enqueued work: 224769, last started work: -1,\nlast completed work: 224760", 5, 224769, 224760, ""),
])
def test_how_far_a_rank_came_in_all_spellings(log, text, rank, enqueued, completed, group):
    found = log(text, "watchdog").progress[0]
    assert (found.rank, found.last_enqueued, found.last_completed, found.last_started, found.group) == (rank, enqueued, completed, None, group)


@pytest.mark.parametrize("text", [
    "[E ProcessGroupNCCL.cpp:456] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, TensorShape=[1, 4], "
    "Timeout(ms)=1800000) ran for 1804404 milliseconds before timing out.",
    "[Rank 1] Watchdog caught collective operation timeout: WorkHCCL(SeqNum=7, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1804404 "
    "milliseconds before timing out.",
    "[Rank 1] Watchdog caught collective operation timeout:\nWorkNCCL(SeqNum=7, OpType=BROADCAST, NumelIn=4,\nNumelOut=4, "
    "Timeout(ms)=1800000) ran for 1804404 ms",
])
def test_a_collective_that_timed_out_in_all_spellings(log, text):
    found = log(text, "watchdog").entries[0]
    assert (found.rank, found.operation, found.waited_s, found.timeout_s, found.state) == (1, "BROADCAST", 1804.404, 1800.0, "timed out")


def test_the_reference_step_written_and_printed(log):
    written, printed = log(log_texts.REFERENCE), log(log_texts.REFERENCE_PRINTED)
    assert [(step.number, step.step_s, step.loss, step.line) for step in written.steps] == [(1, 0.25, 6.2, 2), (2, 0.125, 6.1, 3)]
    assert (written.world, written.figures["communication_exposed_s"], written.memory[0].allocated_bytes) == (2, 0.01, 20)
    assert written.ending.status == "ok"
    assert (printed.steps[0].step_s, printed.steps[0].averaged, printed.steps[0].tokens_per_s_per_device) == (0.137, 3, 931.5)


def test_trials_of_a_rehearsal_end_as_any_run_does(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(log_texts.REHEARSAL)
    ran, failed = (each for each in observe([path]).observations if each.format == "reference_log")
    assert ([step.step_s for step in ran.steps], ran.ending.status) == ([0.2, 0.21, 0.22], "ok")
    assert (failed.settings["label"], failed.ending.status, failed.ending.place.line) == ("tp2 mb1", "oom", 3)


def test_a_log_of_no_framework_says_how_it_ended(log):
    said = log(log_texts.PLAIN)
    assert (said.format, said.ending.status, said.ending.place.line) == ("plain_log", "user", 5)


def test_a_name_that_nobody_knows_is_another_part():
    assert part_of("new-fangled-sync") == "other"
    assert {part_of(each) for each in ("all-grads-sync", "bwd_allreduce", "backward-params-all-reduce")} == {"gradient_reduce"}
    assert part_of("forward-send-backward-recv") in PARTS


def test_timers_that_contain_others_count_their_rest():
    assert split({"forward-backward": 10.0, "forward-compute": 4.0, "backward-compute": 5.0, "batch-generator": 1.0}) == {
        "forward_backward": 1.0, "forward": 3.0, "backward": 5.0, "data": 1.0}

"""Out-of-memory messages are read from any log, in any wording, whatever stands around them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.readers.out_of_memory import read_out_of_memory
from oom_texts import CADS_4, GIB, KAITO_976, MIB, QWEN_240, TORCHTUNE_2071, modern, npu, older

SIZES = st.integers(2**20, 200 * 2**30).map(float)
FIGURES = st.tuples(SIZES, SIZES, SIZES, SIZES, SIZES)
PREFIXES = {
    "": None, "[rank7]: ": 7, "12: ": 12, "[1,3]<stderr>:": 3, "[2026-01-16 07:32:24] [Rank 5] ": 5,
    "ERROR 04-01 23:46:56 [engine.py:160] torch.OutOfMemoryError: ": None, "\x1b[31m[rank0]:\x1b[0m ": 0,
}


def only(text):
    (message,) = read_out_of_memory(text)
    return message


def near(size, wanted):
    """Within the two decimals that a message has."""
    return size is not None and abs(size - wanted) <= 0.006 * max(2.0**10, 2 ** (10 * ((int(wanted).bit_length() - 1) // 10)))


@settings(deadline=None)
@given(FIGURES, st.sampled_from(sorted(PREFIXES)), st.sampled_from(["CUDA", "HIP", "XPU"]), st.integers(0, 15))
def test_the_wording_of_today_is_read_with_every_figure(figures, prefix, platform, device):
    tried, total, free, allocated, unallocated = figures
    text = modern(*figures, platform=platform, device=device, capacity="capacty" if device % 2 else "capacity", process=tried + 1)
    message = only(f"noise\n{prefix}{text}\nnoise")
    assert (message.speaker, message.rank, message.device, message.line) == ("pytorch", PREFIXES[prefix], device, 2)
    for said, wanted in (
        (message.requested_bytes, tried), (message.capacity_bytes, total), (message.free_bytes, free),
        (message.allocated_bytes, allocated), (message.unallocated_bytes, unallocated), (message.process_bytes, tried + 1),
    ):
        assert near(said, wanted)


@settings(deadline=None)
@given(FIGURES, st.sampled_from([older, npu]))
def test_older_wordings_say_reserved_instead_of_unallocated(figures, wording):
    tried, total, free, allocated, unallocated = figures
    message = only(f"RuntimeError: {wording(*figures)}")
    for said, wanted in ((message.requested_bytes, tried), (message.capacity_bytes, total), (message.free_bytes, free),
                         (message.allocated_bytes, allocated)):
        assert near(said, wanted)
    assert abs(message.unallocated_bytes - unallocated) <= 0.02 * (allocated + unallocated) + 0.02 * GIB


@settings(deadline=None)
@given(FIGURES, st.integers(90, 200), st.sampled_from(["", "[rank1]: "]))
def test_a_message_that_is_wrapped_reads_as_on_one_line(figures, width, prefix):
    lines = [""]
    for word in modern(*figures, process=3 * GIB).split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    assert len(lines) > 1
    cut, whole = only("\n".join(prefix + line for line in lines)), only(modern(*figures, process=3 * GIB))
    for name in ("requested_bytes", "capacity_bytes", "free_bytes", "allocated_bytes", "unallocated_bytes", "process_bytes"):
        assert getattr(cut, name) == getattr(whole, name)


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (CADS_4, (22.78, 31.47, 12.73, 9.08, 9.35)),
        (QWEN_240, (124.68, 95.22, 51.23, 25.50, 3.14)),
        (KAITO_976, (546 / 1024, 15.77, 514.19 / 1024, 13.73, 736.86 / 1024)),
        (TORCHTUNE_2071, (1.96, 23.43, 210.06 / 1024, 22.41, 206.09 / 1024)),
    ],
)
def test_messages_of_public_issues(text, figures):
    """samples/MANIFEST.csv."""
    message = only(text)
    said = (message.requested_bytes, message.capacity_bytes, message.free_bytes, message.allocated_bytes, message.unallocated_bytes)
    assert [round(each / GIB, 3) for each in said] == pytest.approx(list(figures), abs=0.002)


def test_the_first_messages_of_pytorch_and_of_extensions():
    cached = only("CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; 10.90 GiB already "
                  "allocated; 576.00 KiB free; 30.96 MiB cached)")
    assert cached.unallocated_bytes == pytest.approx(30.96 * MIB)
    intel = only("RuntimeError: XPU out of memory. Tried to allocate 1.71 GiB (GPU 0; 15.56 GiB total capacity; 0 bytes already "
                 "allocated; 0 bytes reserved in total by PyTorch)")
    assert (intel.allocated_bytes, intel.unallocated_bytes, intel.free_bytes) == (0.0, 0.0, None)
    pools = only(KAITO_976)
    assert pools.private_pool_bytes == 46 * MIB
    assert only(TORCHTUNE_2071).process_bytes is None, "0 bytes is an artefact"
    assert only(QWEN_240).processes == (pytest.approx((608946, 14.91 * GIB)), pytest.approx((734147, 29.07 * GIB)))
    limited = only(modern(2 * GIB, 80 * GIB, 40 * GIB, 38 * GIB, 1 * GIB, allowed=40 * GIB))
    assert limited.open_bytes == pytest.approx(GIB), "what the allocator was told, not what the device has"


def test_mindspore_speaks_in_bytes_and_in_megabytes():
    pool = only("RuntimeError: #umsg#Memory not enough:#umsg#Device(id:3) memory isn't enough and alloc failed, kernel name: "
                "Default/network-MFTrainOneStep/loss-CrossEntropyLoss/LogSoftmax-op1, alloc size: 8405385216B.")
    assert (pool.speaker, pool.device, pool.requested_bytes, pool.phase) == ("mindspore", 3, 8405385216.0, "loss")
    older_pool = only(
        "Memory not enough: current free memory size[1048576] is smaller than required size[4194304], dynamic offset [1]"
    )
    assert (older_pool.free_bytes, older_pool.requested_bytes) == (1048576.0, 4194304.0)
    statistic = only("Out of Memory!!! Request memory size: 8589934592B, Memory Statistic:\nDevice HBM memory size: 62420M\n"
                     "MindSpore Used memory size: 57322M")
    assert (statistic.requested_bytes, statistic.capacity_bytes, statistic.allocated_bytes) == (
        8 * GIB, 62420 * MIB, 57322 * MIB,
    )
    graph = only("[ERROR] PRE_ACT(1) AddMemBlock] TotalUsedMemStatistics : 24725382656 plus TotalUsedByEventMemStatistics : 0 and "
                 "plus alloc size : 100555779072 is more than total mem size : 61079552000.")
    assert (graph.allocated_bytes, graph.requested_bytes, graph.capacity_bytes) == (24725382656.0, 100555779072.0, 61079552000.0)


@pytest.mark.parametrize(
    ("line", "speaker", "requested"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=31.0.", "kernel", None),
        ("[ 1.1] Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB", "kernel", None),
        ("Memory cgroup out of memory: Killed process 12 (pt_main_thread)", "kernel", None),
        ("   State: OUT_OF_MEMORY (exit code 0)", "kernel", None),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory: you tried to allocate "
         "4294967296 bytes.", "kernel", 4 * GIB),
        ("RuntimeError: CUDA error: out of memory", "driver", None),
        ("cudaErrorMemoryAllocation: out of memory", "driver", None),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", "driver", None),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "driver", None),
        ("ng30903:1:2 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", "communication", None),
        ("ng30903:1:2 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes", "communication", 6 * MIB),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.", "xla", 2 * GIB),
    ],
)
def test_who_speaks(line, speaker, requested):
    message = only(f"[rank0]: something\n{line}\n")
    assert (message.speaker, message.requested_bytes) == (speaker, requested)


def test_of_several_ranks_each_speaks_once_and_in_order():
    lines = []
    for rank in (9, 3, 9, 11):
        lines += [f"[rank{rank}]: Traceback (most recent call last):", f"[rank{rank}]: torch.OutOfMemoryError: "
                  + modern(rank * GIB, 80 * GIB, GIB, 70 * GIB, GIB, device=rank % 8)]
    lines.append("slurmstepd: error: Detected 1 oom_kill event in StepId=31.0.")
    found = read_out_of_memory("\n".join(lines))
    assert [(each.rank, each.speaker) for each in found] == [
        (9, "pytorch"), (3, "pytorch"), (11, "pytorch"), (None, "kernel"),
    ]
    assert [each.requested_bytes for each in found[:3]] == [9 * GIB, 3 * GIB, 11 * GIB]


def test_the_same_rank_without_figures_first_keeps_what_its_traceback_said():
    text = (
        '[rank1]:   File "/m/core/tensor_parallel/cross_entropy.py", line 40, in forward\n'
        "[rank1]: RuntimeError: CUDA out of memory\n"
        f"[rank1]: torch.OutOfMemoryError: {modern(GIB, 80 * GIB, 0, 79 * GIB, 0)}"
    )
    message = only(text)
    assert message.requested_bytes == GIB
    assert message.phase == "loss"


def test_a_rank_within_its_node_is_a_device_and_no_rank():
    message = only(f"[default3]:{modern(GIB, 80 * GIB, 0, 79 * GIB, 0, device=0)}")
    assert (message.rank, message.device) == (None, 3)


@pytest.mark.parametrize("where", ["msrun_log/worker_12.log", "output/log/rank_12/error.log"])
def test_logs_of_one_rank_each_name_it(where):
    (message,) = read_out_of_memory(modern(GIB, 80 * GIB, 0, 79 * GIB, 0), where)
    assert message.rank == 12
    (named,) = read_out_of_memory(f"[rank4]: {modern(GIB, 80 * GIB, 0, 79 * GIB, 0)}", where)
    assert named.rank == 4


def test_nanotron_names_the_stage_in_its_prefix():
    message = only(f"01/02/2026 [ERROR|DP=3|PP=2|TP=1]: {modern(GIB, 80 * GIB, 0, 79 * GIB, 0)}")
    assert message.stage == 2


FRAMES = {
    "loss": ("/m/core/tensor_parallel/cross_entropy.py", "calculate_logits_max"),
    "optimizer": ("/t/torch/optim/adamw.py", "_init_group"),
    "gather": ("/t/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", "unshard"),
    "experts": ("/m/core/transformer/moe/token_dispatcher.py", "token_permutation"),
    "attention": ("/m/core/transformer/dot_product_attention.py", "forward"),
    "backward": ("/t/torch/autograd/__init__.py", "_engine_run_backward"),
}


@pytest.mark.parametrize("phase", FRAMES)
def test_the_innermost_frame_that_says_anything_names_the_phase(phase):
    path, function = FRAMES[phase]
    frames = [("/w/train.py", "<module>"), ("/m/core/pipeline_parallel/schedules.py", "forward_backward_func"), (path, function),
              ("/t/torch/nn/functional.py", "linear")]
    lines = ["[rank0]: Traceback (most recent call last):"]
    for each, name in frames:
        lines += [f'[rank0]:   File "{each}", line 3, in {name}', "[rank0]:     x = y(z)"]
        lines.append('[rank1]:   File "/m/other/cross_entropy.py", line 3, in other_rank')
    message = read_out_of_memory("\n".join([*lines, f"[rank0]: {modern(GIB, 80 * GIB, 0, 79 * GIB, 0)}"]))[0]
    assert message.phase == phase
    assert function in message.frame


def test_building_the_model_is_a_phase_of_its_own_and_no_frames_say_nothing():
    setup = only('  File "/m/training.py", line 1, in setup_model_and_optimizer\n  File "/t/optim/adam.py", line 2, in step\n'
                 + modern(GIB, 80 * GIB, 0, 79 * GIB, 0))
    assert setup.phase == "setup"
    plain = only('  File "/m/schedules.py", line 1, in forward_backward_func\n  File "/m/mlp.py", line 2, in forward\n'
                 + modern(GIB, 80 * GIB, 0, 79 * GIB, 0))
    assert (plain.phase, plain.frame) == ("", "")


@pytest.mark.parametrize("text", ["", "  \n\t\n", "iteration 5/10 | loss: 3.1", "memory: 66.91GiB(37.51%)", "no room at the inn"])
def test_text_without_a_message_is_refused_in_one_line(text):
    with pytest.raises(InputError) as error:
        read_out_of_memory(text, "run.log")
    (message,) = error.value.messages
    assert str(message).startswith("run.log: ")
    assert "\n" not in str(message)


@settings(deadline=None)
@given(st.text(max_size=400) | st.text(alphabet=string.printable + "out of memory", max_size=400))
def test_no_text_does_more_than_be_refused(text):
    for hostile in (
        text,
        f"CUDA out of memory. {text}",
        f"Tried to allocate {text} GPU 0",
        f"Memory not enough{text}",
        f"1: {text}oom",
    ):
        try:
            found = read_out_of_memory(hostile)
        except InputError:
            continue
        assert found
        assert all(len(each.text) <= 1500 for each in found)


def test_a_hostile_log_is_bounded():
    many = "\n".join(f"[rank{rank}]: {modern(GIB, 80 * GIB, 0, 79 * GIB, 0)}" for rank in range(5000))
    assert len(read_out_of_memory(many)) == 4096
    endless = "CUDA out of memory. Tried to allocate " + "9" * 10**6 + " GiB"
    assert only(endless).requested_bytes is None

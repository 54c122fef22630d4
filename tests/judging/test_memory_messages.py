"""What a message shows: the verdicts of docs/sources.md#out-of-memory-messages and of its known-answer cases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.fix import classify
from meshwright.readers.out_of_memory import read_out_of_memory
from oom_texts import CADS_4, GIB, KAITO_976, MIB, QWEN_240, TORCHTUNE_2071, modern


def kinds(text):
    (message,) = read_out_of_memory(text)
    return {verdict.kind: verdict for verdict in classify(message)}


def main(text):
    return next(iter(kinds(text)))


def test_cads_is_short_of_0_70_gib_even_if_defragmented():
    found = kinds(CADS_4)
    assert list(found) == ["capacity", "fragmentation"]
    assert found["capacity"].short_bytes / GIB == pytest.approx(0.70, abs=0.011)
    assert "51 %" in str(found["fragmentation"])


def test_torchtune_is_full():
    found = kinds(TORCHTUNE_2071)
    assert list(found) == ["capacity"]
    assert found["capacity"].short_bytes / GIB == pytest.approx(1.55, abs=0.011)


def test_qwen_asks_for_more_than_the_card_and_shares_it():
    found = kinds(QWEN_240)
    assert list(found)[:2] == ["request larger than the device", "other tenant"]
    assert "608946" in str(found["other tenant"])
    assert "734147" not in str(found["other tenant"])


def test_kaito_fits_if_defragmented():
    found = kinds(KAITO_976)
    assert list(found) == ["fragmentation"], "the one process on the device is the one that speaks"
    assert found["fragmentation"].short_bytes == 0.0


def test_another_process_beside_one_that_is_named_apart():
    """THUDM/slime issue 1951."""
    text = modern(29.39 * GIB, 139.81 * GIB, 19.41 * GIB, 92.06 * GIB, 20.79 * GIB, process=117.07 * GIB,
                  others=((1990324, 3.23 * GIB),))
    assert list(kinds(text)) == ["other tenant", "fragmentation"]


def test_small_processes_are_no_tenants():
    text = modern(GIB, 80 * GIB, 0, 70 * GIB, 0, process=72 * GIB, others=((1, 300 * MIB),))
    assert list(kinds(text)) == ["capacity"]


@pytest.mark.parametrize(
    ("frame", "word"),
    [("/m/tensor_parallel/cross_entropy.py", "logits"), ("/t/optim/adamw.py", "first step"), ("/m/moe/experts.py", "expert"),
     ("/t/fsdp/unshard.py", "gathered")],
)
def test_a_shortage_in_a_spike_says_whose_spike(frame, word):
    text = f'File "{frame}", line 2, in step\n{modern(2 * GIB, 80 * GIB, 100 * MIB, 78 * GIB, 100 * MIB)}'
    found = kinds(text)
    assert list(found) == ["transient", "capacity"]
    assert word in str(found["transient"])
    assert frame in str(found["transient"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=31.0.", "host"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes.", "host"),
        ("RuntimeError: CUDA error: out of memory", "outside the allocator"),
        ("NCCL WARN Cuda failure 'out of memory'", "outside the allocator"),
        ("CUDA out of memory", "unknown"),
        ("Device(id:0) memory isn't enough and alloc failed, kernel name: a, alloc size: 1024B.", "capacity"),
    ],
)
def test_messages_without_the_allocators_figures(text, kind):
    assert main(text) == kind


@settings(deadline=None)
@given(*[st.integers(2**20, 100 * 2**30).map(float)] * 5)
def test_the_decision_follows_the_figures(tried, total, free, allocated, unallocated):
    found = kinds(modern(tried, total, free, allocated, unallocated))
    (message,) = read_out_of_memory(modern(tried, total, free, allocated, unallocated))
    asked, usable = message.requested_bytes, message.free_bytes + message.unallocated_bytes
    larger = asked > message.capacity_bytes
    assert next(iter(found)) == (
        "request larger than the device" if larger else "fragmentation" if usable >= asked else "capacity"
    )
    if "capacity" in found:
        assert found["capacity"].short_bytes == pytest.approx(asked - usable)
        assert ("fragmentation" in found) == (message.unallocated_bytes >= 0.1 * message.reserved_bytes)

"""What a run says of itself: exposed communication from events, saved bytes from hooks, moments from an optimizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.engine.exposed import exposed_s, union, without

torch = pytest.importorskip("torch")
SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def covered(spans: list[tuple[int, int]]) -> set[int]:
    return {point for begin, end in spans for point in range(begin, end)}


@given(SPANS, SPANS)
def test_spans_are_sets_of_moments(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert covered(union(one)) == covered(one)  # type: ignore[arg-type]
    assert without(union(one), union(other)) == len(covered(one) - covered(other))


def event(name: str, begin: float, end: float, *, device: str = "DeviceType.CPU", inner: tuple[str, ...] = ()) -> Any:
    span = SimpleNamespace(start=begin, end=end)
    return SimpleNamespace(name=name, device_type=device, time_range=span, cpu_children=inner)


def test_exposed_is_what_no_kernel_covers() -> None:
    on = {"device": "DeviceType.CUDA"}
    events = [
        event("ncclDevKernel_AllReduce", 0, 10e6, **on), event("gemm", 2e6, 5e6, **on), event("aten::mm", 0, 10e6),
        event("ncclDevKernel_AllGather", 8e6, 12e6, **on), event("norm", 11e6, 20e6, **on),
    ]
    assert exposed_s(events) == (12.0, 8.0)


def test_on_a_processor_outer_operators_hide_nothing() -> None:
    events = [
        event("aten::linear", 0, 10e6, inner=("aten::mm",)), event("gloo:all_reduce", 0, 6e6), event("aten::mm", 1e6, 3e6),
        event("ProfilerStep#0", 0, 20e6),
    ]
    assert exposed_s(events) == (6.0, 4.0)


def test_saved_bytes_follow_what_autograd_keeps() -> None:
    from meshwright.engine.memory import Saved

    weight = torch.nn.Parameter(torch.ones(8, 8))
    counted = Saved([weight])
    with torch.autograd.graph.saved_tensors_hooks(counted.keep, lambda kept: kept.tensor):
        x = torch.ones(4, 8)
        one = (x @ weight).exp()
        two = (one @ weight).exp()
        assert counted.bytes == 3 * 4 * 8 * 4, "the input and two results; the weight is known, and no memory counts twice"
        two.sum().backward()
    del one, two
    assert counted.bytes == 0
    assert counted.peak_bytes == 3 * 4 * 8 * 4


def test_starting_the_program_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, meshwright.cli, meshwright.engine.run, meshwright.engine.refusals; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Every benchmark runs at a tiny size, on one rank and on two, and says the right work. Nothing here looks at a time."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from tests import warm

from meshwright.domain.model import MixtureOfExperts
from meshwright.domain.sample import Sample
from meshwright.engine.profile.jobs import BOTH, ONE_WAY, OPERATIONS, PRODUCT_DIRECTIONS, Job, World
from meshwright.engine.profile.store import append, open_store, read_store

torch = pytest.importorskip("torch")

from meshwright.engine.experts import Experts  # noqa: E402
from meshwright.engine.profile import run as profile_run  # noqa: E402
from meshwright.engine.profile.bench import Place, beyond  # noqa: E402
from meshwright.engine.profile.benches.kernels import attention, grouped, product  # noqa: E402
from meshwright.engine.profile.benches.passes import KINDS, passes, permuted  # noqa: E402
from meshwright.engine.profile.request import Care  # noqa: E402
from meshwright.engine.profile.run import Asked, measured  # noqa: E402

HASTE = Care(tolerance=100.0, block_s=1e-4)
"""Six blocks of next to nothing."""
ELEMENTS, WIDTH = 1024, 64
SIZES: dict[str, Any] = {"dtype": "bf16"}
HEADS = {**SIZES, "sequences": 1, "heads": 4, "key_heads": 2, "tokens": 16, "head_dim": 8}


def one_rank_jobs() -> list[Job]:
    found = [
        Job(bench="product", arguments={**SIZES, "rows": 8, "columns": 16, "inner": 24, "direction": each})
        for each in PRODUCT_DIRECTIONS
    ]
    for each in BOTH:
        found += [
            Job(bench="attention", arguments={**HEADS, "direction": each}),
            Job(bench="grouped", arguments={**SIZES, "rows": 9, "columns": 16, "inner": 8, "groups": 2, "direction": each}),
        ]
        found += [pass_job(kind, each) for kind in (*KINDS, "cast") if kind not in ("loss_parallel", *ONE_WAY)]
    found += [pass_job(kind, "forward") for kind in ONE_WAY]
    found += [Job(bench="operator", arguments={"kind": each}) for each in (*BOTH, "plain")]
    found += [
        Job(bench="transfer", arguments={"direction": "on_device", "bytes": 64}),
        Job(bench="memory", arguments={"bytes": 2**16}),
    ]
    return found


def two_rank_jobs() -> list[Job]:
    found = [
        Job(bench="collective", arguments={"operation": each, "ranks": 2, "payload_bytes": 256, "tier": "scale_up"})
        for each in OPERATIONS
    ]
    found += [Job(bench="distributed", arguments={"kind": each, "ranks": 2}) for each in BOTH]
    found += [Job(bench="unit", arguments={"kind": each, "ranks": 2}) for each in (*BOTH, "step")]
    found += [Job(bench="message", arguments={"ranks": 2, "payload_bytes": 64})]
    found += [
        Job(bench="beside", arguments={"operation": each, "payload_bytes": 256, "ranks": 2})
        for each in ("all-reduce", "all-gather")
    ]
    found += [
        Job(bench="pass", arguments={**pass_job("loss", each).arguments, "kind": "loss_parallel", "ranks": 2}) for each in BOTH
    ]
    return found


def pass_job(kind: str, direction: str) -> Job:
    more: dict[str, Any] = {
        "embedding": {"vocabulary": 32},
        "permute": {"experts": 4, "experts_per_token": 2},
        "gathered": {"ranks": 2},
        "scattered": {"ranks": 2},
    }.get(kind, {})
    dtype = "fp32" if kind == "adam" else "bf16"
    return Job(
        bench="pass", arguments={"kind": kind, "elements": ELEMENTS, "width": WIDTH, "dtype": dtype, "direction": direction, **more}
    )


@pytest.fixture(scope="module", params=[1, 2])
def profile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    ranks = request.param
    todo = tuple(one_rank_jobs() if ranks == 1 else [*two_rank_jobs(), one_rank_jobs()[0]])
    path = tmp_path_factory.mktemp("profile") / "samples.jsonl"
    seen: list[tuple[float, float]] = []
    with pytest.MonkeyPatch.context() as patch:
        warm.use(patch)
        patch.setattr(profile_run, "QUICK", HASTE)
        patch.setattr(profile_run, "POLL_S", 0.01)
        asked = Asked(samples=path, ranks=ranks, quick=True, minutes=30.0, only=todo)
        found = measured(asked, lambda done, total: seen.append((done, total)))
    return todo, found, path, seen, asked


def test_every_benchmark_gives_a_sample(profile) -> None:
    todo, found, path, seen, _ = profile
    assert {job.key(found.machine.ranks) for job in todo} == {sample.key for sample in found.samples}
    assert found.too_long == ()
    assert found.reused == 0
    assert read_store(path) == (found.machine, found.samples)
    for sample in found.samples:
        assert 0 < sample.best_s <= sample.low_s <= sample.seconds <= sample.high_s <= sample.worst_s
        assert sample.blocks >= 6
        assert all(isfinite(each) for each in sample.values.values())
    assert seen
    assert all(0 <= done <= total == len(todo) for done, total in seen)
    assert seen == sorted(seen)


def test_what_is_there_is_not_measured_again(profile, monkeypatch: pytest.MonkeyPatch) -> None:
    todo, found, path, _, asked = profile
    monkeypatch.setattr(profile_run, "launch", lambda *_, **__: pytest.fail("nothing is missing"))
    steady = [
        replace(each, worst_s=each.high_s, best_s=each.low_s, seconds=each.high_s, low_s=each.high_s) for each in found.samples
    ]
    before = path.read_bytes()
    for each in steady:
        append(path, replace(each, best_s=each.high_s))
    again = measured(asked)
    assert again.reused == len(todo)
    path.write_bytes(before)


def test_a_product_from_a_busy_moment_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, job = tmp_path / "samples.jsonl", one_rank_jobs()[0]
    asked = Asked(samples=path, ranks=1, only=(job,))
    machine = profile_run.this_machine("cpu", ranks=1, ranks_per_node=1, threads=1)
    open_store(path, machine)
    times = {"best_s": 1.0, "low_s": 1.0, "seconds": 2.0, "high_s": 3.0, "worst_s": 9.0}
    sample = Sample(bench="product", arguments=job.arguments, busy_ranks=1, blocks=6, calls=1, **times)
    append(path, sample)
    assert profile_run.missing_jobs(asked, machine, World(ranks=1, ranks_per_node=1)) == ((job,), (job,))
    append(path, replace(sample, worst_s=3.0))
    assert profile_run.missing_jobs(asked, machine, World(ranks=1, ranks_per_node=1)) == ((job,), ())


@pytest.fixture
def place() -> Place:
    return Place(torch.device("cpu"), World(ranks=1, ranks_per_node=1))


def values_of(bench: Any) -> dict[str, float]:
    return dict(bench.values(dict.fromkeys(bench.parts, 1.0)))


def call_of(bench: Any) -> Any:
    return bench.parts["one"].copies[0]()


def test_products_have_the_shapes_and_work_of_a_linear(place: Place) -> None:
    arguments = {**SIZES, "rows": 8, "columns": 16, "inner": 24}
    shapes = {"forward": (8, 16), "input": (8, 24), "weight": (16, 24)}
    for direction, shape in shapes.items():
        bench = product(place, arguments | {"direction": direction})
        assert call_of(bench).shape == shape
        assert values_of(bench) == {"flops": 2.0 * 8 * 16 * 24, "bytes": 2.0 * (8 * 24 + 24 * 16 + 8 * 16)}


def test_products_are_those_that_autograd_makes(place: Place) -> None:
    """Operator, shapes and strides of the gradients of a Linear without bias."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.products: list[Any] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.mm.default:
                self.products.append([(tuple(each.shape), each.stride()) for each in args])
            return func(*args, **(kwargs or {}))

    linear = torch.nn.Linear(24, 16, bias=False, dtype=torch.bfloat16)
    x = torch.ones(1, 8, 24, dtype=torch.bfloat16, requires_grad=True)
    with Seen() as real:
        linear(x).backward(torch.ones(1, 8, 16, dtype=torch.bfloat16))
    with Seen() as timed:
        for direction in PRODUCT_DIRECTIONS:
            call_of(product(place, {**SIZES, "rows": 8, "columns": 16, "inner": 24, "direction": direction}))
    assert sorted(real.products) == sorted(timed.products)


def test_attention_and_experts_say_their_work(place: Place) -> None:
    sizes = HEADS | {"sequences": 2}
    forward, backward = (attention(place, sizes | {"direction": each}) for each in BOTH)
    assert call_of(forward).shape == (2, 4, 16, 8)
    assert [each.shape for each in call_of(backward)] == [(2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)]
    assert values_of(forward)["flops"] == 2 * 4 * (2 * 16 * 16 * 8)
    assert values_of(backward)["flops"] == 2.5 * values_of(forward)["flops"]
    assert values_of(forward)["bytes"] == 2.0 * 2 * 16 * 8 * (4 + 2 + 2 + 4) == values_of(backward)["bytes"] / 2
    forward, backward = (
        grouped(place, {**SIZES, "rows": 9, "columns": 16, "inner": 8, "groups": 2, "direction": each}) for each in BOTH
    )
    assert call_of(forward).shape == (9, 16)
    assert [each.shape for each in call_of(backward)] == [(9, 8), (2, 8, 16)]
    assert values_of(forward)["flops"] == 2.0 * 9 * 8 * 16 == values_of(backward)["flops"] / 2
    assert values_of(forward)["bytes"] == 2.0 * (9 * 8 + 2 * 8 * 16 + 9 * 16) == values_of(backward)["bytes"] / 2


@pytest.mark.parametrize(
    ("kind", "direction", "size", "operators"),
    [
        ("residual", "forward", 3 * 2 * ELEMENTS, 1),
        ("residual", "backward", 3 * 2 * ELEMENTS, 1),
        ("gate", "forward", (2 + 3) * 2 * ELEMENTS, 2),
        ("cast", "forward", 6 * ELEMENTS, 1),
        ("cast", "backward", 6 * ELEMENTS, 1),
        ("copy", "forward", 4 * ELEMENTS, 1),
        ("scattered", "forward", 6 * ELEMENTS, 1),
        ("embedding", "forward", 2 * 2 * ELEMENTS + 8 * ELEMENTS // WIDTH, 1),
    ],
)
def test_traffic_of_passes_is_what_their_operators_move(place: Place, kind: str, direction: str, size: int, operators: int) -> None:
    found = values_of(passes(place, pass_job(kind, direction).arguments))
    assert (found["bytes"], found["operators"]) == (size, operators)


def test_permuting_is_what_the_experts_do() -> None:
    """The module with experts that change nothing, and the benchmark's own lines."""
    torch.manual_seed(0)
    block = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_width=8)
    module = Experts(16, block)
    module.routed = torch.nn.Module()
    module.routed.forward = lambda rows, counts: rows  # type: ignore[method-assign]
    x = torch.randn(1, 6, 16)
    weights, chosen = module._route(x[0])
    order = chosen.flatten().argsort(stable=True)
    assert torch.equal(module(x)[0], permuted(x[0], weights.flatten(), order, 2))


def test_a_difference_is_never_nothing() -> None:
    parts = {"whole": 5.0, "one": 1.0, "other": 2.0}
    assert beyond("whole", "one", "other", units=2)(parts) == 1.0
    assert beyond("one", "whole")(parts) > 0

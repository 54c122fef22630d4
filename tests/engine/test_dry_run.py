"""Dry runs: their command, what they refuse, a user's own function, and the line through few layers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.dry_run_layouts import DENSE

from meshwright.cli import main
from meshwright.domain.layout import Layout
from meshwright.engine.dry_run import CONVERTER, Collective, Found, Job, dry_run, extrapolated, in_process
from meshwright.errors import InputError

torch = pytest.importorskip("torch")

CASE = ("dryrun", "llama3-8b", "--layers", "2", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "8", "--sequence", "64")

MODULE = """
import torch
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(32, 64, bias=False), nn.ReLU(), nn.Linear(64, 8, bias=False))
    x = torch.zeros(16, 32)
    return model, lambda: model(x).square().mean()

def data_parallel():
    from torch.distributed.fsdp import fully_shard
    model, step = build()
    fully_shard(model)
    return model, step

def wrong():
    size = 3
    raise ValueError(f"no layer of {size}\\nsecond line")

def late():
    model, _ = build()
    return model, lambda: model(torch.zeros(16, 33)).mean()

def nothing():
    return 1, 2

def leaves():
    raise SystemExit(3)
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "mine"


def found_by(builder: str, world: int = 1) -> Found:
    return dry_run([Job(layout=Layout(data_parallel=world), rank=0, sequence_tokens=1, builder=builder)])[0]


def test_a_function_of_the_users_is_counted_exactly(mine: str) -> None:
    found = found_by(f"{mine}:build")
    weights = 32 * 64 + 64 * 8
    assert found.parameters == weights
    assert (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes) == (4 * weights, 4 * weights, 8 * weights)
    # Forward, gradient of weights; no gradient of the first input: 2 m n k each.
    assert found.product_flops == 2 * 16 * (2 * 32 * 64 + 3 * 64 * 8)
    # Kept: what the ReLU gave (which is the second layer's input, too), and what the square is of.
    assert found.activation_bytes == pytest.approx(4 * 16 * (64 + 8), abs=64)
    assert not found.collectives


def test_a_function_of_the_users_runs_in_any_world(mine: str) -> None:
    found = found_by(f"{mine}:data_parallel", world=8)
    weights = 32 * 64 + 64 * 8
    assert found.parameters == weights // 8
    assert found.gathered_bytes == 4 * weights
    sent = {each.operation: each.payload_bytes for each in found.collectives}
    assert sent == {"all-gather": 4 * weights, "reduce-scatter": 4 * weights}


@pytest.mark.parametrize(("name", "words"), [
    ("wrong", "mine:wrong raised ValueError: no layer of 3 at"), ("late", "mine:late raised RuntimeError"),
    ("nothing", "mine:nothing must return (model, step)"), ("absent", "mine:absent raised AttributeError"),
    ("leaves", "mine:leaves raised SystemExit: 3 at"),
])
def test_a_function_that_fails_is_one_line(mine: str, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    status, out, err = run(capsys, "dryrun", "--builder", f"{mine}:{name}", "--devices", "2", "--rank", "1")
    assert (status, out) == (2, "")
    assert words in err
    assert err.strip().count("\n") == 0
    assert "Traceback" not in err


def test_the_frame_that_is_named_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a folder that is called as this package is."""
    folder = tmp_path / "meshwright"
    folder.mkdir()
    (folder / "mine.py").write_text(MODULE)
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=r"mine\.py:\d+ \(raise ValueError"):
        found_by("mine:wrong")


@pytest.mark.parametrize(("words", "said"), [
    (("--layout", "mb1", "--rank", "8"), "rank 8 is not in a world of 8: 0 to 7"),
    (("--layout", "cp2 mb1 context=ring"), "ulysses"),
    ((), "--layout is missing"),
    (("--layout", "mb1", "--precision", "fp8-cs"), "a dry run is of BF16"),
    (("--layout", "mb1", "--builder", "what"), "neither reference, megatron nor MODULE:FUNCTION"),
    (("--layout", "pp2 mb1", "--extrapolate", "--layers", "12", "--builder", "reference", "--rank", "99"), "rank 99"),
    (("--builder", "a:b"), "--devices is missing"),
    (("--builder", "a:b", "--devices", "4", "--layout", "tp4"), "--layout says nothing to a:b"),
    (("--builder", "a:b", "--devices", "4", "--extrapolate"), "--extrapolate says nothing to a:b"),
    (("--builder", "a:b", "--devices", "200000"), "a world of 200000 ranks is beyond a dry run"),
    (("--builder", "a:b", "--devices", "4", "--rank", "4"), "rank 4 is not in a world of 4"),
    (("--layout", "mb1", "--layers", "0"), "0 must be at least 1"),
])
def test_what_cannot_be_run_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("meshwright.engine.dry_run.in_process", never)
    case = ("dryrun",) if "a:b" in words else tuple(word for word in CASE) if "--layers" not in words else CASE[:2] + CASE[4:]
    status, out, err = run(capsys, *case, *words)
    assert (status, out) == (2, "")
    assert said in err


def test_a_dry_run_needs_no_cluster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The world is what the layout's degrees make, or --devices."""
    asked: list[Job] = []

    def found(jobs: list[Job], _: object) -> list[Found]:
        asked.extend(jobs)
        raise InputError("enough")

    monkeypatch.setattr("meshwright.engine.dry_run.in_process", found)
    for words, world in ((("--layout", "tp2 sp pp3 dp2"), 12), (("--layout", "tp2 sp", "--devices", "14"), 14)):
        run(capsys, "dryrun", "llama3-8b", "--layers", "6", "--global-batch", "168", "--sequence", "64", *words, "--rank", "5")
        assert (asked[-1].layout.world, asked[-1].rank) == (world, 5)
    status, _, err = run(
        capsys, "dryrun", "llama3-8b", "--global-batch", "16", "--sequence", "64", "--layout", "dp4", "--devices", "3"
    )
    assert status == 2
    assert "the world is 3" in err
    status, _, err = run(capsys, "dryrun", "no-such-model", "--global-batch", "16", "--sequence", "64", "--layout", "dp4")
    assert status == 2
    assert "unknown model 'no-such-model'" in err


def test_without_torch_the_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # what Python itself takes for "cannot be imported"
    status, out, err = run(capsys, *CASE, "--layout", "mb1")
    assert (status, out) == (2, "")
    assert err.strip() == "error: a dry run needs PyTorch: pip install 'meshwright[torch]'"


def test_a_pytorch_without_a_private_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.engine import fake

    monkeypatch.setattr(fake, "PRIVATE", ("torch.nn:Linear.no_such_thing",))
    with pytest.raises(InputError, match=r"has no torch\.nn\.Linear\.no_such_thing.* PyTorch 2\.13\.0 is known to work"):
        fake.require()


def test_every_private_name_is_there() -> None:
    from meshwright.engine.fake import CHECKED, require

    if torch.__version__.split("+")[0] != CHECKED:
        pytest.skip("another version of PyTorch")
    require()


@pytest.mark.usefixtures("fresh")
def test_the_command_prints_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *CASE, "--layout", "tp2 sp mb1 zero2", "--rank", "7", "--json")
    assert status == 0, err
    view = json.loads(out)
    assert (view["world"], view["rank"]) == (8, 7)
    assert view["memory_peak_bytes"] == sum(view["memory_bytes"].values())
    assert view["flops"] > 0
    assert {"operation", "ranks", "calls", "payload_bytes"} == set(view["collectives"][0])
    assert {each["figure"]: each["difference_ratio"] for each in view["comparison"]}["optimizer states"] == 0.0


def test_jobs_travel_as_json() -> None:
    job = Job(model=DENSE, layout=Layout(pipeline_parallel=2), rank=1, sequence_tokens=64)
    assert CONVERTER.structure(json.loads(json.dumps(CONVERTER.unstructure(job, Job))), Job) == job


def test_the_line_through_two_and_four_layers_goes_on() -> None:
    """Linear figures at 2 and 4 layers give those of 6, and messages that one run lacks count from nothing."""
    jobs = [Job(model=replace(DENSE, pattern=(0,) * layers), layout=Layout(), rank=0, sequence_tokens=64) for layers in (2, 4, 6)]
    two, four, six = in_process(jobs)
    line = extrapolated(two, four, fewer=2, more=4, layers=6)
    for name in ("parameters", "optimizer_bytes", "activation_bytes", "product_flops", "attention_flops"):
        assert getattr(line, name) == pytest.approx(getattr(six, name), rel=1e-4)
    assert line.peak_bytes == pytest.approx(six.peak_bytes, rel=0.01)
    message = Collective(operation="send", ranks=2, calls=1, payload_bytes=10)
    assert extrapolated(two, replace(four, collectives=(message,)), fewer=2, more=4, layers=8).collectives[0].calls == 3


def test_megatrons_own_model_runs_or_is_said_to_be_missing() -> None:
    job = Job(model=DENSE, layout=Layout(tensor_parallel=2), rank=0, sequence_tokens=64, builder="megatron")
    try:
        found = dry_run([job])[0]
    except InputError as error:
        assert error.messages[0].id == "dryrun.no-megatron"
        assert "megatron-core is not installed" in str(error)
    else:
        assert 2 * found.parameters <= found.parameter_bytes <= 1.01 * 2 * found.parameters, (
            "BF16, some releases with norms in FP32"
        )
        assert found.optimizer_bytes == 2 * found.parameter_bytes
        assert {each.operation for each in found.collectives} == {"all-reduce"}

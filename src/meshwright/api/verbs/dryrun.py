"""``dryrun``: one step of chosen ranks on fake devices, beside what the cost model says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.legality import check_layout
from meshwright.api.options import CASE, LAYOUT
from meshwright.api.request import Answer, CaseRequest, Progress
from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.engine.dry_run import Found, Job

IMPLEMENTATION = "reference"
"""What the cost model says is said for the reference step's own implementation, unless another is asked for."""
RECIPE = "bf16"
DEVICE, NODE = "h100-sxm", 8
"""Stand in where no cluster is named: figures of a dry run, and the cost model's of the same, depend on none."""
BUILDER = Field(name="builder", metavar="reference|megatron|MODULE:FUNCTION", panel="Dry run", in_file=False, help=(
    "What is run: the reference step, megatron-core's GPTModel, or your own function, which takes nothing and returns "
    "(model, step) or (model, step, optimizer); step() returns the loss [default: reference]."))
RANK = Field(name="rank", parse=numbers.count_or_none, kind="many", metavar="R", panel="Dry run", in_file=False,
             help="Rank to run, repeatable [default: the first rank of the first, the middle and the last stage].")
EXTRAPOLATE = Field(name="extrapolate", kind="flag", panel="Dry run", in_file=False,
                    help="Run 2 and 4 layers of every chunk and extend the line: seconds instead of minutes.")
WORLD = 131_072
FEWER, MORE = 2, 4
"""Layers of a chunk that an extrapolation runs."""


class DryrunRequest(CaseRequest, frozen=True, kw_only=True):
    """A case and its layout, or a function of the user's; and which ranks are run."""

    FIELDS: ClassVar[tuple[Field, ...]] = (*CASE, LAYOUT, BUILDER, RANK, EXTRAPOLATE)

    layout: str | None = None
    builder: str | None = None
    rank: Sequence[int | str] = ()
    extrapolate: bool = False


class DryrunAnswer(Answer, frozen=True, kw_only=True):
    """What the ranks found."""

    builder: str
    world: int
    found: tuple[Found, ...]
    given: Setup | None = None
    """The case that the cost model's figures stand beside; None where what is run is not the reference step."""
    layout: Layout | None = None

    def to_json(self) -> dict[str, Any]:
        """The document of ``dryrun --json``."""
        from meshwright.api.views.dryrun import dryrun_view, own_view

        if self.given is None or self.layout is None:
            return own_view(self.world, self.found)
        return dryrun_view(self.given.case, self.layout, self.found)


@door
def dryrun(request: DryrunRequest, *, progress: Progress | None = None) -> DryrunAnswer:
    """Run the ranks in processes of their own.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` without torch.
    """
    from meshwright.engine.dry_run import require_torch

    faults = Faults()
    values = request.read(faults)
    with faults:
        require_torch()
    builder = values.get("builder", "reference")
    if ":" in builder:
        world, own = _own(values, builder, faults)
        return DryrunAnswer(builder=builder, world=world, found=tuple(own))
    if builder not in ("reference", "megatron"):
        faults.add("dryrun.builder", "{word!r} is neither reference, megatron nor MODULE:FUNCTION", path="--builder", word=builder)
    given, layout, ranks = _chosen(values, faults)
    found = tuple(_found(given, layout, ranks, builder, extrapolate=values["extrapolate"]))
    if builder != "reference":  # what the cost model says is said of the reference step
        return DryrunAnswer(builder=builder, world=layout.world, found=found)
    return DryrunAnswer(builder=builder, world=layout.world, found=found, given=given, layout=layout)


def _own(values: Values, builder: str, faults: Faults) -> tuple[int, list[Found]]:
    """A function of the user's: the number of devices is the world."""
    from meshwright.domain.layout import Layout
    from meshwright.engine.dry_run import Job, dry_run

    if "devices" not in values:
        faults.add("dryrun.world", "--devices is missing: ranks of the world that {builder} is run in", builder=builder)
    for name, option in (("model", "MODEL"), ("layout", "--layout"), ("extrapolate", "--extrapolate")):
        if values.get(name):
            faults.add("dryrun.own-option", "{option} says nothing to {builder}, which builds its own: leave it out",
                       option=option, builder=builder)
    layout = Layout(data_parallel=values.get("devices", WORLD))
    ranks = _ranks(values["rank"], layout, faults)
    faults.check()
    jobs = [Job(layout=layout, rank=rank, sequence_tokens=1, builder=builder) for rank in ranks]
    return layout.world, dry_run(jobs, workers=_workers(jobs))


def _chosen(values: Values, faults: Faults) -> tuple[Setup, Layout, list[int]]:
    """The case, its layout, and the ranks that are run; what the reference step cannot run is refused."""
    from meshwright.api.cases import drafted
    from meshwright.engine.refusals import refused
    from meshwright.engine.request import Request

    if "layout" not in values and "layout" not in faults.failed:
        faults.add("dryrun.layout", '--layout is missing, as in --layout "tp8 sp mb1 zero3"')
    draft = drafted({"implementation": IMPLEMENTATION, **_somewhere(values)}, faults)
    given, layout, ranks = draft.setup, draft.layout(values, faults), list[int]()
    said = {"precision": RECIPE, "optimizer": "adamw", "task": "pretrain", **values}
    wrong = said["precision"] != RECIPE or said["task"] == "lora" or said["optimizer"] != "adamw"
    if wrong and not {"precision", "optimizer", "task"} & faults.failed:
        faults.add("dryrun.numbers", "a dry run is of BF16 with AdamW and all weights, not of {precision}, {optimizer}, {task}",
                   precision=said["precision"], optimizer=said["optimizer"], task=said["task"])
    if layout is not None:
        if layout.context_parallel > 1 and "context=" not in values["layout"].lower():
            layout = replace(layout, context_kind="ulysses")  # the one that the reference step has
        ranks = _ranks(values["rank"], layout, faults)
    if given is not None and layout is not None:
        with faults.at("layout"):
            check_layout(given, layout, framework_asked="framework" in values)
        request = Request(model=given.case.model, layout=layout, sequence_tokens=given.case.batch.sequence_tokens, bf16=True)
        with faults.at("layout"):
            if reasons := refused(request, world=layout.world):
                raise InputError(Message(each.id, each.template, each.values, path="layout") for each in reasons)
    faults.check()
    assert given is not None and layout is not None, "faults.check() raises where one is missing"
    return given, layout, ranks


def _somewhere(values: Values) -> dict[str, Any]:
    """The values with a cluster: a dry run needs none, so without one the world is --devices or what the layout's degrees make."""
    if "cluster" in values or "nodes" in values:
        return dict(values)
    degrees = re.findall(r"(?<!\w)(?:tp|cp|pp|dp)([1-9]\d{0,9})(?!\w)", values.get("layout", ""))
    world = values.get("devices") or prod(map(int, degrees))
    node = max(size for size in range(1, NODE + 1) if world % size == 0)
    return {"device": DEVICE, "devices": world, "devices_per_node": node, **values}


def _ranks(asked: Sequence[int], layout: Layout, faults: Faults) -> list[int]:
    """The ranks that are run; those that are not in the world are noted."""
    world, stages = layout.world, layout.pipeline_parallel
    if world > WORLD:
        faults.add("dryrun.size", "a world of {world} ranks is beyond a dry run, for PyTorch makes every group: {most} at most",
                   path="layout", world=world, most=WORLD)
    for rank in asked:
        if rank >= world:
            faults.add("dryrun.rank", "rank {rank} is not in a world of {world}: 0 to {last}", path="--rank",
                       rank=rank, world=world, last=world - 1)
    return list(asked) or [stage * (world // stages) for stage in sorted({0, stages // 2, stages - 1})]


def _found(given: Setup, layout: Layout, ranks: Sequence[int], builder: str, *, extrapolate: bool) -> list[Found]:
    """What the ranks find, with all layers or from fewer."""
    from meshwright.engine.dry_run import Job, dry_run, extrapolated

    tokens = given.case.batch.sequence_tokens

    def jobs(model: Model) -> list[Job]:
        return [Job(model=model, layout=layout, rank=rank, sequence_tokens=tokens, builder=builder) for rank in ranks]

    model = given.case.model
    chunks = layout.pipeline_parallel * layout.virtual_stages
    if not extrapolate or model.num_layers <= MORE * chunks:
        every = jobs(model)
        return dry_run(every, workers=_workers(every))
    _check_line(model, layout, chunks)
    small, large = (jobs(_cut(model, layers * chunks)) for layers in (FEWER, MORE))
    found = dry_run([*small, *large], workers=_workers([*small, *large]))
    pairs = zip(found[: len(ranks)], found[len(ranks) :], strict=True)
    return [extrapolated(two, four, fewer=FEWER, more=MORE, layers=model.num_layers // chunks) for two, four in pairs]


def _cut(model: Model, layers: int) -> Model:
    return replace(model, pattern=model.pattern[:layers])


def _check_line(model: Model, layout: Layout, chunks: int) -> None:
    """Figures are linear in layers only where layers, chunks and their recomputation are alike."""
    from meshwright.domain.layout import Full

    reasons = {
        "its layers are of several kinds": len(set(model.pattern)) > 1,
        f"{model.num_layers} layers do not spread evenly over {chunks} chunks": model.num_layers % chunks > 0,
        "the layout places its layers itself": layout.stage_layers is not None,
        "the layout recomputes some layers only": isinstance(layout.recompute, Full) and layout.recompute.layers is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise fault("dryrun.line", "{model} cannot be extrapolated from few layers: {reason}; leave out --extrapolate",
                        path="--extrapolate", model=model.name, reason=reason)


def _workers(jobs: Sequence[Job]) -> int:
    return max(1, min(len(jobs), os.cpu_count() or 1))

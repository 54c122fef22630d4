"""``plan``: search, rank, explain, compare, cost, save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import CASE, PLAN
from meshwright.api.paged import paged
from meshwright.api.pins import consistent, divides
from meshwright.api.request import Answer, CaseRequest, Progress, ticking
from meshwright.errors import Message, fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.cases import Setup
    from meshwright.api.packed_search import Tried
    from meshwright.domain.layout import Layout
    from meshwright.evidence.rows.near import Near
    from meshwright.judging.walk import GuidedStep
    from meshwright.search.cost import RunCost
    from meshwright.search.devices import MinimumDevices
    from meshwright.search.result import Comparison, PlanResult, SearchOptions


class PlanRequest(CaseRequest, frozen=True, kw_only=True):
    """A case, how its layouts are searched, and what else is asked of the best."""

    FIELDS: ClassVar[tuple[Field, ...]] = (*CASE, *PLAN)

    top: int | str | None = None
    objective: str | None = None
    pin: Mapping[str, object] | Sequence[str] = ()
    """Knobs that are fixed: ``{"tp": 8}`` or ``["tp=8"]``."""
    risk: str | None = None
    spare_nodes: int | str | None = None
    weak: bool = False
    no_balance: bool = False
    compare: str | None = None
    """A label: why not this layout?"""
    guided: bool = False
    """Also go the way of the guide, each step beside the best plan."""
    tokens: float | str | None = None
    deadline_days: float | str | None = None
    price_per_device_hour: float | str | None = None
    power_w: float | str | None = None
    min_devices: bool = False
    save: str | Path | None = None
    """A folder for ``plan.yaml`` and the launch files of the first plan."""
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class PlanAnswer(Answer, frozen=True, kw_only=True):
    """Ranked plans, and what was asked about the first of them."""

    given: Setup
    result: PlanResult
    closest: Near | None
    """The published run that is nearest to the case."""
    tried: tuple[Tried, ...] = ()
    """Caps of a pack that were tried, where one was searched."""
    comparison: Comparison | None = None
    guided: tuple[GuidedStep, ...] | None = None
    """The guide's steps, the first first; empty where none is legal."""
    run: RunCost | None = None
    min_devices: MinimumDevices | None = None
    saved: tuple[str, ...] | None = None
    """Paths of the files that were written."""

    @property
    def ok(self) -> bool:
        """Whether a plan fits."""
        return _answered(self.result)

    def to_json(self) -> dict[str, Any]:
        """The document of ``plan --json``."""
        from meshwright.api.views.estimates import comparison_view, plain, plan_view
        from meshwright.api.views.guided import guided_view
        from meshwright.api.views.packing import packing_view
        from meshwright.api.views.runs import closest_view
        from meshwright.domain.launching import settings_of

        document = plan_view(self.given.request, self.result) | {"closest_run": closest_view(self.closest)}
        case = self.given.case
        document["launch"] = {
            name: {"value": value, "source": "given" if name in case.launch.given else case.implementation.name}
            for name, value in settings_of(case).items()
        }
        document |= packing_view(self.given, self.result.plans[0].estimate if self.ok else None)
        if self.comparison is not None:
            document["comparison"] = comparison_view(self.comparison)
        if self.guided is not None:
            document["guided"] = guided_view(self.guided, self.result.plans[0].estimate)
        for key in ("run", "min_devices", "saved"):
            if (value := getattr(self, key)) is not None:
                document[key] = plain(value)
        return document


@door
@paged
def plan(request: PlanRequest, *, progress: Progress | None = None) -> PlanAnswer:
    """Search every layout of a case, and answer everything that was asked about the best.

    Errors:  ``InputError`` with every fault of the request; that nothing fits is a verdict of the answer.
    """
    from meshwright import search
    from meshwright.api.left_off import left_off
    from meshwright.api.measured_beside import against
    from meshwright.api.packed_search import any_packs, best_packs
    from meshwright.api.searching import searched_by
    from meshwright.api.unmeasured import unmeasured
    from meshwright.evidence.rows.near import closest

    faults = Faults()
    values = request.read(faults)
    given, options, compared = _prepared(values, faults)
    searched = partial(searched_by, options=options, tick=ticking(progress, "layouts"), asked="framework" in values)
    given, result, tried = best_packs(given, searched) if any_packs(given, values) else (given, searched(given), ())
    if compared is None and "compare" in values:
        compared = given.layout(values["compare"])
    features = given.framework.features
    near = closest(given.case)
    if _answered(result):
        said = (*_release(given, asked="framework" in values), *left_off(given, result, options), *unmeasured(given, result))
        said += tuple(against(given, result, near))
        if "save" in values and given.framework.writer is not None:
            said += given.framework.told(given.case).remarks
        result = replace(result, notes=(*result.notes, *said))
    answer = PlanAnswer(given=given, result=result, closest=near, tried=tried)
    tokens, deadline = values.get("tokens"), values.get("deadline_days")
    if compared is not None and answer.ok:
        answer = replace(answer, comparison=search.compare(given.case, features, result, compared, options))
    if values["guided"] and answer.ok:
        answer = replace(answer, guided=_walked(given, result))
    if tokens is not None and answer.ok:
        cost = search.run_cost(
            given.case, result.plans[0].estimate, tokens, price_per_device_hour=values.get("price_per_device_hour"),
            power_w=values.get("power_w"), deadline_days=deadline,
        )
        answer = replace(answer, run=cost)
    if values["min_devices"]:
        least = search.min_devices(
            given.case, features, tokens=tokens, deadline_days=deadline, progress=ticking(progress, "cluster sizes"),
            options=options, runner=given.framework, price_per_device_hour=values.get("price_per_device_hour"),
        )
        answer = replace(answer, min_devices=least)
    if "save" in values and answer.ok:
        answer = replace(answer, saved=tuple(_save(given, result, values)))
    return answer


def _release(given: Setup, *, asked: bool) -> Iterator[Message]:
    """That a later release than usual is planned for, where nobody named one."""
    name, _, release = given.request["framework"].partition("@")
    if release and not asked:
        words = "planned for {title} {release}, the first release that trains {model} as written here: --framework {name}@{release}"
        values = {"title": given.framework.title, "release": release, "model": given.case.model.name, "name": name}
        yield Message("plan.release", words, values)


def _answered(result: PlanResult) -> bool:
    """Whether a plan fits."""
    from meshwright.domain.estimate import Infeasible

    return bool(result.plans) and not isinstance(result.verdict, Infeasible)


def _prepared(values: Values, faults: Faults) -> tuple[Setup, SearchOptions, Layout | None]:
    """The case, the options of the search and what is compared with; every fault of all at once."""
    from meshwright.api.cases import drafted
    from meshwright.api.packed_search import any_packs
    from meshwright.api.searching import trains
    from meshwright.search.result import SearchOptions

    pins = consistent(values["pin"], faults)
    if "tokens" not in values:
        for name in ("deadline_days", "price_per_device_hour", "power_w"):
            if name in values:
                option = f"--{name.replace('_', '-')}"
                faults.add("plan.tokens", "{option} needs --tokens: the length of the run", option=option)
    if values["guided"] and (pins or values.get("objective", "step-time") != "step-time"):
        faults.add("plan.guided", "--guided goes its own way to the shortest step: leave out --pin and --objective")
    if "save" in values:
        from meshwright.outputs import obstacles

        faults.note(obstacles(folder=values["save"]))
    draft = drafted(values, faults)
    given, compared = draft.setup, None
    if given is None or not any_packs(given, values):
        compared = draft.layout(values, faults, "compare")
    with faults.at("framework"):
        if given is not None and "framework" in values:
            trains(given)
    with faults.at("pin"):
        if draft.num_devices is not None and not values.get("spare_nodes") and "spare_nodes" not in faults.failed:
            divides(pins, draft.num_devices)
    faults.check()
    assert given is not None, "faults.check() raises where there is no case"
    wanted = {name: values[name] for name in ("top", "objective", "risk", "spare_nodes", "weak") if name in values}
    return given, SearchOptions(pins=pins, balance=not values.get("no_balance"), **wanted), compared


def _walked(given: Setup, result: PlanResult) -> tuple[GuidedStep, ...]:
    """The guide's way, through layouts that the framework runs."""
    from meshwright.judging.ground import Ground
    from meshwright.judging.walk import walk

    case, runner = given.case, given.framework
    ground = Ground(
        case=case, features=runner.features, acceptable=lambda layout: not runner.check(case, layout),
        said=lambda layout: runner.overlap(case, layout),
    )
    return walk(ground, result.plans[0].estimate)


def _save(given: Setup, result: PlanResult, values: Values) -> list[str]:
    """Write the first plan and the framework's launch files."""
    from meshwright.api.launch_files import launch_files
    from meshwright.api.saved import plan_file
    from meshwright.outputs import in_folder, write

    if given.values:
        raise fault("save.value", "{names} was given as a value: a plan that can be read again needs its name or file",
                    path="save", names=" and ".join(given.values))
    best = result.plans[0]
    files = [plan_file(given.request, best.estimate)]
    if given.framework.writer is not None:
        files += launch_files(given, best.layout, best.estimate)
    inputs = [str(values[name]) for name in ("model", "request", "cluster", "lengths", "calibration") if name in values]
    return write(in_folder(values["save"], files), force=values["force"], inputs=inputs)

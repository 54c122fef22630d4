"""``meshwright plan``: search, rank, explain, compare, cost, save."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.cli.fields import Faults, Values
from meshwright.cli.options import CASE, JSON, PLAN
from meshwright.cli.pins import consistent, divides
from meshwright.cli.request import Setup, setup
from meshwright.errors import InputError, Message, fault
from meshwright.outputs import in_folder, obstacles, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.search.result import PlanResult, RankedPlan, SearchOptions

EPILOG = "Example: meshwright plan llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"
FIELDS = (*CASE, *PLAN, JSON)


def run(values: Values, faults: Faults) -> int:
    """Search, then everything that was asked about the answer."""
    from meshwright import search
    from meshwright.cli.output import progress
    from meshwright.domain.estimate import Infeasible

    given, options = _prepared(values, faults)
    compared = given.layout(values["compare"]) if "compare" in values else None
    features = given.framework.features
    with progress("layouts") as tick:
        result = _searched(given, options, tick, asked="framework" in values)
    answered = bool(result.plans) and not isinstance(result.verdict, Infeasible)
    more: dict[str, Any] = {}
    if compared is not None and answered:
        more["comparison"] = search.compare(given.case, features, result, compared, options)
    tokens, deadline = values.get("tokens"), values.get("deadline_days")
    if tokens is not None and answered:
        price, power = values.get("price_per_device_hour"), values.get("power_w")
        more["run"] = search.run_cost(
            given.case, result.plans[0].estimate, tokens,
            price_per_device_hour=price, power_w=power, deadline_days=deadline,
        )
    if values["min_devices"]:
        with progress("cluster sizes") as tick:
            more["min_devices"] = search.min_devices(given.case, features, tokens=tokens, deadline_days=deadline, progress=tick)
    if "save" in values and answered:
        more["saved"] = _save(given, result, values)
    _print(given, result, more, values)
    return 0 if answered else 1


def _prepared(values: Values, faults: Faults) -> tuple[Setup, SearchOptions]:
    """The case and the options of the search; every fault of both at once."""
    from meshwright.frameworks import framework, frameworks
    from meshwright.search.result import SearchOptions

    pins = consistent(values["pin"], faults)
    if "tokens" not in values:
        for name in ("deadline_days", "price_per_device_hour", "power_w"):
            if name in values:
                option = f"--{name.replace('_', '-')}"
                faults.add("plan.tokens", "{option} needs --tokens: the length of the run", option=option)
    if "save" in values:
        faults.messages += obstacles(folder=values["save"])
    given = setup(values, faults)
    if "framework" in values and given.case.training.task not in given.framework.features.tasks:
        able = [name for name in frameworks() if given.case.training.task in framework(name).features.tasks]
        raise fault("plan.task", "{name} does not train with {task}; {able} can", path="--framework", name=given.framework.title,
                    task=given.case.training.task, able=", ".join(able))
    if "framework" in values:
        _trains(given)
    if not values.get("spare_nodes"):
        divides(pins, given.case.cluster.num_devices)
    wanted = {name: values[name] for name in ("top", "objective", "risk", "spare_nodes", "weak") if name in values}
    return given, SearchOptions(pins=pins, balance=not values.get("no_balance"), **wanted)


def _trains(given: Setup) -> None:
    """Refuse a model, a recipe or a device that the framework does not train, whatever the layout, before anything is searched."""
    from meshwright.domain.layout import Layout

    devices, batch = given.case.cluster.num_devices, given.case.batch.global_batch_sequences
    plain = Layout(data_parallel=devices, num_microbatches=max(1, batch // devices))
    reasons = [each for each in given.framework.check(given.case, plain) if each.path in {"model", "training", "cluster"}]
    if reasons:
        raise InputError(Message(each.id, each.template, each.values, "--framework") for each in reasons)


def _searched(given: Setup, options: SearchOptions, tick: Callable[[int, int], None] | None, *, asked: bool) -> PlanResult:
    """Search; say what the framework could not run, and which others could where it was not asked for."""
    from meshwright import search
    from meshwright.frameworks import framework, frameworks

    position = given.case.model.position
    try:
        result = search.plan(
            given.case, given.framework.features, options, progress=tick,
            acceptable=lambda layout: not given.framework.check(given.case, layout),
            said=lambda layout: given.framework.overlap(given.case, layout),
        )
    except InputError as error:
        able = [name for name in frameworks() if position in framework(name).features.positions]
        if asked or position in given.framework.features.positions or not able:
            raise
        hint = Message("plan.other-framework", "{name} is only the default; --framework {able} can run it",
                       {"name": given.framework.title, "able": ", ".join(able)}, path="--framework")
        raise InputError([*error.messages, hint]) from None
    if not result.plans:
        return result
    limits = given.framework.check(given.case, result.plans[0].layout)
    notes = [
        Message(
            "plan.framework",
            "{name} cannot run the first plan: {reason}",
            {"name": given.framework.title, "reason": Message(each.id, each.template, each.values)},
        )
        for each in limits
    ]
    if asked and limits:
        raise InputError(notes)
    runs = result.plans if not limits else tuple(_cannot_run(plan) for plan in result.plans)
    return replace(result, notes=(*result.notes, *notes), plans=runs)


def _cannot_run(plan: RankedPlan) -> RankedPlan:
    """A plan that the framework refuses: no run of it finishes."""
    return replace(plan, estimate=replace(plan.estimate, fit_probability=0.0))


def _save(given: Setup, result: PlanResult, values: Values) -> list[str]:
    """Write the first plan and the framework's launch files."""
    from meshwright.cli.export import launch_files
    from meshwright.cli.saved import plan_file

    best = result.plans[0]
    files = [plan_file(given.request, best.estimate)]
    if given.framework.writer is not None and not given.framework.check(given.case, best.layout):
        files += launch_files(given, best.layout, best.estimate)
    inputs = [str(values[name]) for name in ("model", "request", "cluster", "lengths", "calibration") if name in values]
    return write(in_folder(values["save"], files), force=values["force"], inputs=inputs)


def _print(given: Setup, result: PlanResult, more: dict[str, Any], values: Values) -> None:
    """The answer as JSON, or as a report."""
    from meshwright.cli.output import print_json, print_report
    from meshwright.evidence.rows.near import closest

    if values["json"]:
        from meshwright.report.runs import closest_view
        from meshwright.report.view import comparison_view, plain, plan_view

        document = plan_view(given.request, result) | {"closest_run": closest_view(closest(given.case))}
        for key, value in more.items():
            document[key] = comparison_view(value) if key == "comparison" else plain(value)
        print_json(document)
        return
    from meshwright.report.compare import comparison_report
    from meshwright.report.cost import minimum_lines, run_cost_lines, saved_lines
    from meshwright.report.plan import plan_report

    print_report(plan_report(given.case, result, closest(given.case)))
    if "comparison" in more:
        print_report(comparison_report(more["comparison"]))
    if "run" in more:
        print_report(run_cost_lines(more["run"], result.plans[0].estimate))
    if "min_devices" in more:
        print_report(minimum_lines(more["min_devices"]))
    if "saved" in more:
        print_report(saved_lines(more["saved"]))

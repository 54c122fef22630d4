"""The case that a run trained: from a plan or files beside its log, or from the log's own dump of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.fields import Faults, Values
    from meshwright.api.sources import Taken
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed import Observation
    from meshwright.frameworks import Framework


class Seen(Value, frozen=True, kw_only=True):
    """What is known of the case, and what is not."""

    framework: Framework | None = None
    case: Case | None = None
    layout: Layout | None = None
    devices: int | None = None
    settings: Mapping[str, str] | None = None
    """As the files or the log have them."""
    notes: tuple[Message, ...] = ()
    """Why there is no prediction, where there is none."""


def of_plan(values: Values, faults: Faults) -> Seen:
    """The case and the layout of a saved plan."""
    from meshwright.api.cases import setup
    from meshwright.api.saved import load_plan

    planned = load_plan(values["plan"], faults)
    named = {name: value for name, value in planned.items() if name != "layout"}
    found = setup(named, faults)
    return Seen(
        framework=found.framework, case=found.case, layout=found.layout(planned["layout"]), devices=found.case.cluster.num_devices
    )


def of_files(values: Values, faults: Faults) -> Seen:
    """The case of a framework's files beside the log, with what the options say."""
    from meshwright.api.sources import take

    taken = take(values, faults)
    return _seen(taken, {key: str(each.value) for key, each in taken.reading.source.settings.items()})


def of_log(values: Values, observations: Sequence[Observation]) -> Seen:
    """The case of the log's own dump, as far as options and catalogue complete it; what is wrong with it is noted, not raised."""
    from meshwright.api.fields import Faults
    from meshwright.api.seen_model import model_said
    from meshwright.api.sources import take
    from meshwright.domain.observed import RunLog
    from meshwright.frameworks import framework, frameworks
    from meshwright.frameworks.settings import Given

    logs = [each for each in observations if isinstance(each, RunLog) and each.settings]
    spoken = [each.framework for each in observations if isinstance(each, RunLog)]
    named = values.get("from_") or next((name for name in spoken if name in frameworks()), "")
    for log in logs:
        settings = {key: value for each in logs if each.file == log.file for key, value in each.settings.items()}
        for name in dict.fromkeys((named.partition("@")[0], log.framework, *frameworks())):
            logged = framework(name).logged if name in frameworks() else None
            files = () if logged is None else logged(settings, log.file)
            if not files:
                continue
            asked = {**values, "files": [], "from_": named or name}
            if log.world and "nodes" not in values:
                asked.setdefault("devices", log.world)
            faults = Faults()
            try:
                why: Sequence[Message] = ()
                if (model := values.get("model")) is None:
                    model, why = model_said(framework(name).read(files, given=Given(num_devices=log.world)), settings, log.file)
                taken = take({**asked, "model": model} if model is not None else asked, faults, files)
                return _seen(taken, settings, why)
            except InputError as error:
                return Seen(framework=framework(named or name), devices=log.world, settings=settings, notes=error.messages)
    return Seen(framework=framework(named) if named else None, settings=logs[0].settings if logs else None)


def _seen(taken: Taken, settings: Mapping[str, str] | None = None, why: Sequence[Message] = ()) -> Seen:
    """``why``: what is said of the model, where there is none."""
    from meshwright.api.sources import wanted

    case = taken.case.case if taken.case is not None else None
    notes = [*why, *taken.impossible]
    if taken.missing:
        notes.append(
            Message("diagnose.missing", "no prediction beside it: {missing} would make one", {"missing": wanted(taken.missing)})
        )
    if taken.reading.layout is None:
        notes += taken.reading.messages
    whole = taken.framework.for_case(case) if case is not None else taken.framework
    return Seen(framework=whole, case=case, layout=taken.reading.layout, devices=taken.size, settings=settings, notes=tuple(notes))

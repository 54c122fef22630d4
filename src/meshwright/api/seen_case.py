"""The case that a run trained: from a plan or files beside its log, or from the log's own dump of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.fields import Faults, Values
    from meshwright.api.sources import Taken
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.domain.observed import Observation
    from meshwright.frameworks import File, Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of the case, and what is not."""

    framework: Framework | None = None
    case: Case | None = None
    layout: Layout | None = None
    devices: int | None = None
    settings: Mapping[str, str] | None = None
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


def of_files(values: Values, faults: Faults, files: Sequence[File]) -> Seen:
    """The case of a framework's files beside the log, with what the options say."""
    from meshwright.api.sources import take

    return _seen(take(values, faults, files))


def of_log(values: Values, observations: Sequence[Observation]) -> Seen:
    """The case of the log's own dump, as far as options and catalogue complete it; what is wrong with it is noted, not raised."""
    from meshwright.api.fields import Faults
    from meshwright.api.sources import take
    from meshwright.domain.observed import RunLog
    from meshwright.frameworks import framework, frameworks

    logs = [each for each in observations if isinstance(each, RunLog) and each.settings]
    spoken = [each.framework for each in observations if isinstance(each, RunLog)]
    named = values.get("from_") or next((name for name in spoken if name in frameworks()), "")
    for log in logs:
        for name in dict.fromkeys((named.partition("@")[0], log.framework, *frameworks())):
            logged = framework(name).logged if name else None
            file = None if logged is None else logged(log.settings, log.file)
            if file is None:
                continue
            asked = {**values, "files": [], "from_": named or name}
            if log.world and "nodes" not in values:
                asked.setdefault("devices", log.world)
            faults = Faults()
            try:
                model = values.get("model") or _model(framework(name), file, log.settings, log.world)
                return _seen(take({**asked, "model": model} if model is not None else asked, faults, [file]), log.settings)
            except InputError as error:
                return Seen(framework=framework(named or name), devices=log.world, settings=log.settings, notes=error.messages)
    return Seen(framework=framework(named) if named else None, settings=logs[0].settings if logs else None)


def _seen(taken: Taken, settings: Mapping[str, str] | None = None) -> Seen:
    from meshwright.api.sources import wanted

    case = taken.case.case if taken.case is not None else None
    notes = list(taken.impossible)
    if taken.missing:
        notes.append(
            Message("diagnose.missing", "no prediction beside it: {missing} would make one", {"missing": wanted(taken.missing)})
        )
    if taken.reading.layout is None:
        notes += taken.reading.messages
    whole = taken.framework.for_case(case) if case is not None else taken.framework
    return Seen(framework=whole, case=case, layout=taken.reading.layout, devices=taken.size, settings=settings, notes=tuple(notes))


def _model(named: Framework, file: File, settings: Mapping[str, str], world: int | None) -> Model | None:
    """A model with the shapes that the dump has; None where it does not have them all."""
    from meshwright.evidence.rows.refused import UnreadableError
    from meshwright.evidence.rows.row import Row, Shape
    from meshwright.evidence.rows.row_model import model_of
    from meshwright.frameworks.settings import Given

    figures: Mapping[str, Any] = named.read([file], given=Given(num_devices=world)).said.figures
    vocabulary = figures.get("vocabulary") or _number(settings.get("padded_vocab_size"))
    heads, groups = figures.get("heads"), figures.get("key_value_heads")
    shape = Shape(
        attention="mha" if heads == groups else "gqa",
        gated=settings.get("swiglu", "False") == "True",
        num_layers=figures.get("layers"),
        hidden=figures.get("hidden"),
        num_heads=heads,
        num_key_value_heads=groups,
        head_dim=figures.get("head_dim"),
        ffn_width=figures.get("ffn"),
        vocabulary=vocabulary,
        num_experts=figures.get("experts"),
        experts_per_token=figures.get("experts_per_token"),
        expert_width=figures.get("expert_ffn"),
    )
    try:
        return model_of(
            Row(model="of the log", shape=shape, sequence_tokens=_number(settings.get("seq_length")), framework=named.name)
        )
    except UnreadableError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None

"""Which published runs are nearest to a case: a distance in doublings, with every part of it named."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from math import log2
from typing import TYPE_CHECKING

from meshwright.errors import InputError, fault
from meshwright.evidence.rows.attempts import Attempts, attempts
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Device
    from meshwright.domain.model import Model

PARAMETERS, DEVICES, SEQUENCE, BATCH, WIDTH = 1.0, 0.5, 0.5, 0.25, 0.75
"""Distance of one doubling: of parameters (half of it active ones), devices, sequence, tokens per step, bytes of a number."""
MODEL, KIND, SAME_FAMILY, OTHER_FAMILY, RECIPE, TASK, FRAMEWORK = 0.25, 3.0, 0.5, 2.5, 0.25, 1.5, 0.5
"""Distance of another model of one size, of dense for mixture (or a size unpublished), of a device of the same family, of any
other device, of another recipe of one width, of another task, of another family of frameworks."""
NEAR = 2.0
"""What is further away tells little about a case: twice the parameters on four times the devices is just near, the same on
another family of devices is not."""
SAME_SIZE = 0.02
_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mbt])")
_SIZES_IN_NAME = re.compile(r"(?<![0-9.a-z])([0-9]{1,6}(?:\.[0-9]{1,3})?)([mbt])(?![a-z0-9])")
_FACTOR = {"m": 1e6, "b": 1e9, "t": 1e12}


class Wanted(Value, frozen=True, kw_only=True):
    """What is asked about; None where it does not matter."""

    model: str | None = None
    parameters: float | None = None
    active_parameters: float | None = None
    shape: tuple[int, int] | None = None
    """Layers and hidden width."""
    is_moe: bool | None = None
    device: str | None = None
    device_family: str | None = None
    devices: int | None = None
    sequence_tokens: int | None = None
    global_batch_sequences: int | None = None
    precision: str | None = None
    task: str | None = None
    family: str | None = None
    """Family of frameworks, as ``Implementation.family`` names it."""


class Difference(Value, frozen=True, kw_only=True):
    """One thing in which a published run differs, and how much of the distance that is."""

    what: str
    """Name of the field."""
    published: float | str
    wanted: float | str
    distance: float


class Near(Value, frozen=True, kw_only=True):
    """A cell, how far it is, and why."""

    cell: Attempts
    distance: float
    differs: tuple[Difference, ...]
    """The largest part first."""


def wanted_model(name: str) -> Wanted:
    """A model by its catalogue name or file, by its name in the corpus, or by its size alone, as ``8B``.

    Errors: ``InputError`` where it is none of these.
    """
    from meshwright.catalog import load_model

    size = _SIZE.fullmatch(name.strip().lower())
    if size and (parameters := _parameters(size.groups())):
        return Wanted(parameters=parameters)
    try:
        return of_model(load_model(name))
    except InputError as error:
        known = [cell.best for cell in attempts() if cell.best.model.lower() == name.strip().lower()]
        if not known:
            raise fault(
                "near.model", "{reason}; neither does the corpus hold it (meshwright catalog runs), nor is it a size such as 8B",
                path="--near", reason=str(error.messages[0]),
            ) from None
        run = known[0]
        return Wanted(
            model=run.model, parameters=run.parameters, active_parameters=run.active_parameters, is_moe=run.is_moe,
            shape=(run.layers, run.hidden) if run.layers and run.hidden else None,
        )


def of_model(model: Model) -> Wanted:
    """What is asked where a model is given."""
    from meshwright.perf.parameters import active_parameters, total_parameters

    return Wanted(
        model=model.name, parameters=float(total_parameters(model)), active_parameters=float(active_parameters(model)),
        shape=(model.num_layers, model.hidden), is_moe=model.is_moe,
    )


def of_case(case: Case) -> Wanted:
    """What is asked where a whole case is given."""
    return replace(
        on_device(of_model(case.model), case.cluster.device), devices=case.cluster.num_devices,
        sequence_tokens=case.batch.sequence_tokens, global_batch_sequences=case.batch.global_batch_sequences,
        precision=case.training.precision.name, task=case.training.task, family=case.implementation.family,
    )


def on_device(wanted: Wanted, device: Device) -> Wanted:
    """The same, asked of a device."""
    return replace(wanted, device=device.name, device_family=device.family)


def nearest(wanted: Wanted, limit: int | None = None, among: Sequence[Attempts] | None = None) -> tuple[Near, ...]:
    """Published runs from the nearest on; of equally near cells the one of the name, then the one with the most runs."""
    found = [near(wanted, cell) for cell in (attempts() if among is None else among)]
    found.sort(
        key=lambda each: (
            round(each.distance, 6), not _same_name(wanted, each.cell), -each.cell.ran - each.cell.failed, each.cell.best.id,
        )
    )
    return tuple(found[:limit])


def closest(case: Case) -> Near | None:
    """The published run nearest to a case that measured a speed; None where even that one is further away than ``NEAR``."""
    among = [cell for cell in attempts() if cell.best.tokens_per_s_per_device is not None]
    first = nearest(of_case(case), 1, among)
    return first[0] if first and first[0].distance <= NEAR else None


def near(wanted: Wanted, cell: Attempts) -> Near:
    """How far a cell is from what is asked.

        d = 1/2 |lg P/P'| + 1/2 |lg A/A'| + 1/2 |lg N/N'| + 1/2 |lg s/s'| + 1/4 |lg T/T'| + 3/4 |lg b/b'| + steps

    Symbols: lg logarithm to base 2; P parameters, A active ones, N devices, s tokens of a sequence, T tokens per step (sequences,
             where one side lacks the length), b bits of a number; steps: 1/4 another model of the size or another recipe of the
             width, 1/2 another device of the family or another family of frameworks, 3/2 another task, 5/2 another family
             of devices, 3 dense against mixture of experts, or a size that is not published.
    Units:   doublings.
    Holds:   what is not asked for, or not published, adds nothing. A size such as ``8B`` is met by a name that says it.
    """
    run = cell.best
    parts = [
        *_model(wanted, cell),
        _step("device", run.device, wanted.device, SAME_FAMILY if run.device_family == wanted.device_family else OTHER_FAMILY),
        _ratio("devices", run.devices, wanted.devices, DEVICES),
        _ratio("sequence_tokens", run.sequence_tokens, wanted.sequence_tokens, SEQUENCE),
        _batch(wanted, cell),
        _step("precision", run.precision, wanted.precision, _recipe(run.precision, wanted.precision)),
        _step("task", run.task, wanted.task, TASK),
        _step("family", run.family, wanted.family, FRAMEWORK),
    ]
    differs = sorted((part for part in parts if part), key=lambda part: -part.distance)
    return Near(cell=cell, distance=sum(part.distance for part in differs), differs=tuple(differs))


def _model(wanted: Wanted, cell: Attempts) -> list[Difference | None]:
    run = cell.best
    if wanted.parameters is None or _same_name(wanted, cell):
        return []
    if run.parameters is None:
        return [Difference(what="model", published=run.model, wanted=wanted.model or "", distance=KIND)]
    if wanted.model is None:  # a size alone
        return [_ratio("parameters", run.parameters, wanted.parameters, PARAMETERS)]
    total = _ratio("parameters", run.parameters, wanted.parameters, PARAMETERS / 2)
    active = _ratio("active_parameters", run.active_parameters, wanted.active_parameters, PARAMETERS / 2)
    kind = _step("is_moe", _kind(run.is_moe), _kind(wanted.is_moe), KIND)
    if total is None and wanted.shape == (run.layers, run.hidden):  # the same under another name
        return []
    if total and active and not (run.is_moe or wanted.is_moe):  # one number: dense models are not told twice
        total, active = replace(total, distance=total.distance + active.distance), None
    return [_step("model", run.model, wanted.model, MODEL), total, active, kind]


def _same_name(wanted: Wanted, cell: Attempts) -> bool:
    """Whether the run's model has the name, or a name that says the size."""
    name = cell.best.model.lower()
    if wanted.model is not None:
        return name == wanted.model.lower()
    return any(_parameters(size) == wanted.parameters for size in _SIZES_IN_NAME.findall(name))


def _parameters(size: Sequence[str]) -> float:
    """``("8", "b")`` as parameters."""
    return float(size[0]) * _FACTOR[size[1]]


def _batch(wanted: Wanted, cell: Attempts) -> Difference | None:
    """Tokens per step, or sequences where the length is not asked for."""
    run = cell.best
    if not run.global_batch_sequences or not wanted.global_batch_sequences:
        return None
    if run.sequence_tokens and wanted.sequence_tokens:
        return _ratio(
            "step_tokens", run.global_batch_sequences * run.sequence_tokens,
            wanted.global_batch_sequences * wanted.sequence_tokens, BATCH,
        )
    return _ratio("global_batch_sequences", run.global_batch_sequences, wanted.global_batch_sequences, BATCH)


def _ratio(what: str, published: float | None, wanted: float | None, weight: float) -> Difference | None:
    """A quantity by its doublings; within two per cent it is the same."""
    if not published or not wanted or abs(published / wanted - 1.0) <= SAME_SIZE:
        return None
    return Difference(what=what, published=published, wanted=wanted, distance=weight * abs(log2(published / wanted)))


def _step(what: str, published: str | None, wanted: str | None, distance: float) -> Difference | None:
    """A word that is the same or not."""
    if wanted is None or published is None or published == wanted:
        return None
    return Difference(what=what, published=published, wanted=wanted, distance=distance)


@cache  # few recipes, hundreds of runs
def _recipe(published: str, wanted: str | None) -> float:
    doublings = abs(log2(_bits(published) / _bits(wanted or published)))
    return WIDTH * doublings if doublings else RECIPE


def _bits(precision: str) -> float:
    """Bits of the numbers that matrices compute in: nvfp4 4, fp8-* 8, bf16 16."""
    found = re.search(r"fp(4|8)", precision)
    return float(found[1]) if found else 16.0


def _kind(is_moe: bool | None) -> str | None:
    return None if is_moe is None else "mixture of experts" if is_moe else "dense"

"""SAPP's layer file (JSON): what stands at the head, in the body and at the tail of a model, as values.

Source of its keys: mindspore-ai/toolkits e0486ee, ``pipeline_balance/utils/layer.py`` and ``layers/template.json``.
Times are in any one unit, memories in MB.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.domain.balance import Body, End
from meshwright.errors import InputError, Message, fault
from meshwright.readers.fields import Fields
from meshwright.readers.limits import MAX_LAYERS
from meshwright.readers.safe import load_json, require_mapping
from meshwright.readers.sapp.amounts import amount, known_keys, label
from meshwright.readers.sapp.treatments import BACKWARD_OVER_FORWARD, ORDER, TREATMENTS
from meshwright.text import shown
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.readers.sapp.treatments import Treatment

LAYER_TYPES = ("HEAD", "BODY", "TAIL")
MAX_ENTRIES = 100
SPACED_KEY = "recompute_time "
"""SAPP looks for the measured time of full recomputation under a key with a space behind it."""
_TOP = ("name", "stage_const_mem", "pre_defined_layer", "auto_partition_layer", "auto_partition_ends", "layers_description")
_LAYER = (
    "name", "type", "model_name", "nb_layer", "time", "forward_time", "memory_parameter",
    *(key for each in TREATMENTS for key in (each.memory_key, each.time_key, each.coefficient_key)), SPACED_KEY,
)
_TIME_HINT = "; SAPP reads time"


class LayerFile(Value, frozen=True, kw_only=True):
    """Times and memories of a model's layers; memories in MB, times in the file's unit."""

    name: str
    treatments: tuple[str, ...]
    """Ways of recomputing that some body has an activation memory for, ``none`` first."""
    bodies: tuple[Body, ...]
    """In the file's order; infinite backward time where a body has not a treatment that another has."""
    first: End
    last: End
    constant_memory_mb: float = 0.0
    """On every stage whatever it holds."""
    constant_in_ends: bool = False
    """Whether the memories of both ends already contain the constant, as decomposed peaks do."""
    source: str = ""
    remarks: tuple[Message, ...] = ()
    """What the file says twice and differently, or says to nobody."""

    @property
    def layers(self) -> int:
        """Layers of all bodies."""
        return sum(body.layers for body in self.bodies)


def read_layer_file(path: Path | str) -> LayerFile:
    """The layers that a file of SAPP describes; every fault of it at once."""
    return layer_file_from(load_json(path), where=str(path))


def layer_file_from(document: object, *, where: str) -> LayerFile:
    """The layers that a document in SAPP's form describes."""
    top = Fields(require_mapping(document, where), where)
    known_keys(top, _TOP, {"layers": "; SAPP reads layers_description"})
    constant = amount(top, "stage_const_mem", default=0.0, minimum=-math.inf)
    remarks: list[Message] = []
    top.check_name("name", top.data.get("name") or Path(where).stem)
    layers = [_layer(fields, remarks) for fields in _entries(top)]
    if top.faults:
        raise InputError(top.faults)
    for kind in LAYER_TYPES:
        if not any(layer.type == kind for layer in layers):
            raise fault("sapp.type_missing", "no entry of type {kind}{hint}", path=f"{where}: layers_description", kind=kind,
                        hint="" if kind == "BODY" else "; give it with time 0 and memory_parameter 0 if there is none")
    _unique_names(layers, where)
    if constant < 0:
        remarks.append(Message("sapp.negative_constant", "{value:g} MB makes every stage look lighter than its layers",
                               {"value": constant}, f"{where}: stage_const_mem"))
    remarks += _counted_twice(top, layers)
    return _assembled(top, layers, constant, tuple(remarks))


class _Layer(Value, frozen=True, kw_only=True):
    name: str
    type: str
    layers: int
    time: float
    forward_time: float
    memory: float
    activations: Mapping[str, float]
    backwards: Mapping[str, float]


def _entries(top: Fields) -> list[Fields]:
    """The entries of ``layers_description`` as fields."""
    entries = top.data.get("layers_description")
    if not isinstance(entries, list) or not entries:
        problem = "is missing" if entries is None else "is not a list of layers"
        top.fault("layers_description", "sapp.layers", "{problem}", problem=problem)
        return []
    if len(entries) > MAX_ENTRIES:
        top.fault("layers_description", "sapp.many", "{count} entries; {limit} is the limit", count=len(entries), limit=MAX_ENTRIES)
        return []
    result = []
    for place, entry in enumerate(entries):
        if isinstance(entry, dict):
            result.append(Fields(entry, f"{top.path}: layers_description[{place}]", top.faults))
        else:
            words = "{value} stands there, keys with values are expected"
            top.fault(f"layers_description[{place}]", "config.mapping", words, value=shown(entry))
    return result


def _layer(fields: Fields, remarks: list[Message]) -> _Layer:
    kind = fields.data.get("type")
    if kind not in LAYER_TYPES:
        fields.fault("type", "sapp.type", "{value} is none of HEAD, BODY, TAIL", value=shown(kind))
    known_keys(fields, _LAYER, dict.fromkeys(("head_time", "body_time", "tail_time"), _TIME_HINT))
    name = fields.data.get("name")
    if not isinstance(name, str) or not name:
        fields.fault("name", "sapp.name", "{value} is no name", value=shown(name))
    fields.check_name("name", name)
    body = kind == "BODY"
    time = amount(fields, "time", above=body)
    layers = fields.size("nb_layer", default=None if body else 1, maximum=MAX_LAYERS)
    activations = {each.name: size for each in TREATMENTS if (size := amount(fields, each.memory_key, default=0.0)) > 0}
    if body and ORDER[0] not in activations:
        fields.fault(TREATMENTS[0].memory_key, "sapp.activation",
                     "is missing or 0: what a layer keeps without recomputation must be known")
    backwards = {each.name: _backward(fields, each, time, remarks) for each in TREATMENTS}
    if not body and (activations or fields.has("forward_time")):
        remarks.append(Message("sapp.end_ignored", "only time and memory_parameter of a {kind} are read, as SAPP does",
                               {"kind": kind}, fields.path))
    return _Layer(
        name=str(name), type=str(kind), layers=layers, time=time, activations=activations, backwards=backwards,
        forward_time=amount(fields, "forward_time", default=time, above=body), memory=amount(fields, "memory_parameter"),
    )


def _backward(fields: Fields, treatment: Treatment, time: float, remarks: list[Message]) -> float:
    """Measured backward, or SAPP's; a measured 0 counts as not measured."""
    measured = amount(fields, treatment.time_key, default=0.0)
    if treatment.name == "full":
        if measured:
            remarks.append(Message("sapp.spaced_key", "is read here; SAPP itself looks for 'recompute_time ' with a space",
                                   {}, f"{fields.path}.recompute_time"))
        measured = amount(fields, SPACED_KEY, default=0.0) or measured
    coefficient = amount(fields, treatment.coefficient_key, default=treatment.default_coefficient)
    return measured or (1.0 + coefficient) * BACKWARD_OVER_FORWARD * time


def _unique_names(layers: list[_Layer], where: str) -> None:
    """SAPP keeps variables by name: two of one name would be one."""
    names = [layer.name for layer in layers]
    for name in names:
        if names.count(name) > 1:
            raise fault("sapp.duplicate", "two entries are called {name!r}", path=f"{where}: layers_description", name=name)
    total = sum(layer.layers for layer in layers if layer.type == "BODY")
    if total > MAX_LAYERS:
        raise fault("sapp.giant", "{total} layers; {limit} is the limit", path=f"{where}: layers_description",
                    total=total, limit=MAX_LAYERS)


def _counted_twice(top: Fields, layers: list[_Layer]) -> list[Message]:
    """Bodies whose number of layers ``auto_partition_layer`` states differently: SAPP reads ``nb_layer``."""
    stated = top.data.get("auto_partition_layer")
    counts = stated if isinstance(stated, dict) else {}
    text = "{stated} layers here, nb_layer is {layers}; SAPP reads nb_layer"
    return [
        Message("sapp.two_counts", text, {"stated": shown(counts[layer.name]), "layers": layer.layers},
                f"{top.path}: auto_partition_layer.{label(layer.name)}")
        for layer in layers
        if layer.type == "BODY" and layer.name in counts and counts[layer.name] != layer.layers
    ]


def _assembled(top: Fields, layers: list[_Layer], constant: float, remarks: tuple[Message, ...]) -> LayerFile:
    bodies = [layer for layer in layers if layer.type == "BODY"]
    treatments = tuple(name for name in ORDER if any(name in body.activations for body in bodies))
    name = top.data.get("name")
    return LayerFile(
        name=name if isinstance(name, str) and name else Path(top.path).stem,
        treatments=treatments,
        bodies=tuple(
            Body(
                name=body.name, layers=body.layers, forward_time=body.forward_time, static_memory=body.memory,
                backward_times=tuple(body.backwards[each] if each in body.activations else math.inf for each in treatments),
                activation_memory=tuple(body.activations.get(each, 0.0) for each in treatments),
            )
            for body in bodies
        ),
        first=_end(layers, "HEAD"),
        last=_end(layers, "TAIL"),
        constant_memory_mb=constant,
        source=top.path,
        remarks=remarks,
    )


def _end(layers: list[_Layer], kind: str) -> End:
    """All entries of one end together: SAPP takes ``time`` forward and twice it backward, and ``memory_parameter``."""
    time = sum(layer.time for layer in layers if layer.type == kind)
    memory = sum(layer.memory for layer in layers if layer.type == kind)
    return End(forward_time=time, backward_time=BACKWARD_OVER_FORWARD * time, static_memory=memory)

"""Models: blocks of ``data/models/*.yaml``, a Hugging Face ``config.json`` or a user's YAML file.

A block writes the facts in the words of ``domain.model``: ``attention``, ``mlp`` and ``experts`` hold for every layer.
Layers that differ are named in ``kinds`` (what a kind sets replaces the common fact) and laid out by ``pattern`` (runs)
or ``repeat`` (a cycle over ``layers``). Without ``kinds`` there are two: ``mlp`` and ``experts``. A block may instead hold the
published configuration itself, under ``config``; the reader of its architecture makes the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import field

from meshwright.catalog.figures import Provenance, cited, record_in
from meshwright.catalog.model_blocks import ModelRecord, block_faults, build_model, numbers_of
from meshwright.catalog.sheets import Names, Sheet, data_path, looks_like_path, read_sheet, shipped
from meshwright.catalog.shrinking import shrink
from meshwright.domain.model import Model
from meshwright.errors import InputError, Message, fault
from meshwright.readers.limits import MAX_SIZE, refuse_giants
from meshwright.readers.safe import require_mapping
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator


class ConfiguredRecord(Value, frozen=True, kw_only=True):
    """A block that holds a published configuration."""

    source: str
    parameters: int | None = None
    assumed: tuple[str, ...] = ()
    """Paths of figures that could not be read from a source: ``config.intermediate_size``."""
    aliases: tuple[str, ...] = ()
    num_mtp_passes: int = 0
    """Runs of its multi-token-prediction layer in training, which no configuration says."""
    config: Mapping[str, object] = field(default_factory=dict)
    vision: Mapping[str, object] = field(default_factory=dict)


MAY_BE_ZERO = frozenset({
    "shared_width", "position_table", "num_mtp_layers", "num_mtp_passes", "norms", "inputs", "outputs", "weights", "rate",
    "convolution", "whole_layers",
})
SUMS = frozenset({"parameters", "tower.parameters"})
"""Keys that add up a model's sizes, or those of a part."""


def models() -> tuple[str, ...]:
    """Names of the catalogue's models, sorted."""
    return model_names().names


def load_model(name_or_path: str | Model, *, layers: int | None = None) -> Model:
    """A model of the catalogue, of a ``config.json`` (or the folder that holds it), of a YAML file with one model, or the value."""
    if isinstance(name_or_path, Model):
        return name_or_path if layers is None else shrink(name_or_path, layers)
    name = model_names().find(name_or_path)
    if name is not None:
        model = _catalogued(name)
    elif looks_like_path(name_or_path):
        model = _from_path(_expanded(name_or_path))
    else:
        model = _catalogued(model_names().resolve(name_or_path))
    return model if layers is None else shrink(model, layers)


def _expanded(path: str) -> Path:
    """A path with ``~`` as the user's folder; as it stands where nobody has that name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def published_parameters(name: str) -> int | None:
    """The number of parameters that the source of a model states, where it states one."""
    return _record(*_place(name)).parameters


def model_provenance(name: str) -> Mapping[str, Provenance]:
    """Every figure of a model by its path. A model's figures share one source; assumed ones say so."""
    sheet, _ = _place(name)
    record = _record(*_place(name))
    source = cited(record.source, sheet.sources)
    if isinstance(record, ConfiguredRecord):
        model = _catalogued(name)
        numbers = {"hidden": model.hidden, "vocabulary": model.vocabulary, **dict(_config_numbers(record.config, "config."))}
    else:
        numbers = dict(numbers_of(record))
    return {
        path: Provenance(
            value, "1" if isinstance(value, float) else "count", f"assumed: {source}" if path in record.assumed else source
        )
        for path, value in numbers.items()
    }


def published_config(name: str) -> Mapping[str, object] | None:
    """The published configuration that a model's block holds, where it holds one."""
    record = _record(*_place(name))
    return record.config if isinstance(record, ConfiguredRecord) else None


def published_tower(name: str) -> Mapping[str, object]:
    """The keys of a multi-modal wrapper that a model's block holds beside its language model; empty where it holds none."""
    return _record(*_place(name)).vision


def _config_numbers(config: Mapping[str, object], prefix: str) -> Iterator[tuple[str, float]]:
    """Every number of a configuration with its path; lists say which layers are which and count as text."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _config_numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{key}", value


@cache
def model_names() -> Names:
    """Every spelling of every model, scanned from the text of the sheets without parsing them.

    A heading is a line of two spaces, a name and a colon; its aliases are one line of four spaces. A test holds the
    scan to a full parse.
    """
    aliases: dict[str, list[str]] = {}
    for name, _, spellings in _scan():
        assert name not in aliases, f"model {name!r} stands in two sheets"
        aliases[name] = spellings
    return Names("model", aliases, "meshwright catalog models")


_HEADING = re.compile(r"^  (?P<name>[^\s#:][^\s:]*):[ ]*$|^    aliases: \[(?P<aliases>.*)\][ ]*$", re.MULTILINE)


@cache
def _scan() -> tuple[tuple[str, Path, list[str]], ...]:
    """Name, sheet and aliases of every model."""
    found: list[tuple[str, Path, list[str]]] = []
    for path in sorted(data_path("models").glob("*.yaml")):
        _, _, text = path.read_text(encoding="utf-8").partition("\nmodels:\n")
        for match in _HEADING.finditer(text):
            if match["name"]:
                found.append((match["name"], path, []))
            else:
                found[-1][2].extend(word.strip().strip("\"'") for word in match["aliases"].split(",") if word.strip())
    return tuple(found)


def _place(name: str) -> tuple[Sheet, str]:
    canonical = model_names().resolve(name)
    path = next(path for found, path, _ in _scan() if found == canonical)
    return shipped(f"models/{path.name}"), canonical


@cache
def _catalogued(name: str) -> Model:
    sheet, canonical = _place(name)
    return _built(canonical, _record(sheet, canonical), sheet)


def _from_path(path: Path) -> Model:
    if path.is_dir():
        path /= "config.json"
    if path.suffix.lower() == ".json":
        from meshwright.readers.hf_config import read_config  # with all architectures: not where a block says the model itself

        return read_config(path)
    sheet = read_sheet(path)
    if len(sheet.models) != 1:
        raise fault("model.one", "holds {count} models, one is expected under 'models'", path=str(path), count=len(sheet.models))
    name = next(iter(sheet.models))
    return _built(name, _record(sheet, name), sheet)


def _built(name: str, record: ModelRecord | ConfiguredRecord, sheet: Sheet) -> Model:
    """The model of a block of either form."""
    where = sheet.where("models", name)
    if isinstance(record, ModelRecord):
        return _seeing(build_model(name, record, sheet), record.vision, where)
    from meshwright.readers.hf_config import model_from_config

    model = model_from_config(record.config, where=f"{sheet.where('models', name)}.config", name=name)
    passes = record.num_mtp_passes or model.num_mtp_passes
    model = replace(model, name=name, num_mtp_passes=passes, source=cited(record.source, sheet.sources), assumed=record.assumed)
    return _seeing(model, record.vision, where)


def _seeing(model: Model, vision: Mapping[str, object], where: str) -> Model:
    """The model with the tower that its block holds as the wrapper's file has it."""
    if not vision:
        return model
    from meshwright.readers.fields import Fields
    from meshwright.readers.towers import tower_of, towers

    wrapper = Fields(vision, f"{where}.vision")
    tower = tower_of(wrapper, model.hidden, str(vision.get("architecture", "")))
    if wrapper.faults:
        raise InputError(wrapper.faults)
    if tower is None:
        raise fault("model.vision", "says nothing of a tower that is known: model_type is one of {known}, beside vision_config",
                    path=wrapper.path, known=", ".join(towers))
    beside = f"{tower.name} ({tower.layers} layers of {tower.hidden:,})"
    return refuse_giants(replace(model, vision=tower, beside=(beside,)), where)


def _record(sheet: Sheet, name: str) -> ModelRecord | ConfiguredRecord:
    where = sheet.where("models", name)
    block = _filled(sheet, name, ())
    if isinstance(block, dict) and "config" in block:
        config = require_mapping(block["config"], f"{where}.config")
        vision = require_mapping(block.get("vision", {}), f"{where}.vision")
        said = {key: value for key, value in block.items() if key not in ("config", "vision")}
        return replace(record_in(sheet, said, ConfiguredRecord, where=where), config=config, vision=vision)
    vision = {}
    if isinstance(block, dict) and "vision" in block:
        vision = require_mapping(block["vision"], f"{where}.vision")
        block = {key: value for key, value in block.items() if key != "vision"}
    try:
        record = record_in(sheet, block, ModelRecord, where=where)
    except InputError as error:
        reported = {each.path for each in error.messages}
        raise InputError([*error.messages, *(each for each in _size_faults(block, where) if each.path not in reported)]) from None
    faults = [
        Message(
            "model.range", "{value} is not within {low}..{high}", {"value": value, "low": low, "high": MAX_SIZE}, f"{where}.{path}"
        )
        for path, value in numbers_of(record)
        if isinstance(value, int)
        and path not in SUMS
        and not (low := int(path.rpartition(".")[2] not in MAY_BE_ZERO)) <= value <= MAX_SIZE
    ]
    faults += block_faults(record, where)
    if faults:
        raise InputError(faults)
    return replace(record, vision=vision)


def _size_faults(block: object, where: str) -> Iterator[Message]:
    """Whole numbers of a block, at any depth, that are none of a model's sizes."""
    if not isinstance(block, dict):
        return
    for key, value in block.items():
        low = int(key not in MAY_BE_ZERO)
        if isinstance(value, dict):
            yield from _size_faults(value, f"{where}.{key}")
        elif isinstance(value, int) and not isinstance(value, bool) and key != "parameters" and not low <= value <= MAX_SIZE:
            values = {"value": value, "low": low, "high": MAX_SIZE}
            yield Message("model.range", "{value} is not within {low}..{high}", values, f"{where}.{key}")


def _filled(sheet: Sheet, name: str, seen: tuple[str, ...]) -> object:
    """A block with the keys of the model of the same sheet or of the catalogue that it is ``like``."""
    block = sheet.models[name]
    if not isinstance(block, dict) or "like" not in block:
        return block
    base_name, where = block["like"], f"{sheet.where('models', name)}.like"
    if not isinstance(base_name, str):
        raise fault("value.text", "is not the name of a model", path=where)
    if base_name in seen or base_name == name:
        raise fault("model.like", "the model is like itself", path=where)
    if base_name in sheet.models:
        base = _filled(sheet, base_name, (*seen, name))
    elif model_names().find(base_name):
        base = _filled(*_place(base_name), ())
    else:
        hint = model_names().near(base_name, sheet.models)
        raise fault("catalog.unknown", "unknown model {name!r}{hint}", path=where, name=base_name, hint=hint)
    kept = {key: value for key, value in base.items() if key not in ("aliases", "parameters")} if isinstance(base, dict) else {}
    own = {key: value for key, value in block.items() if key != "like"}
    if "pattern" in own:
        kept = {key: value for key, value in kept.items() if key not in ("layers", "repeat")}
    elif {"layers", "repeat"} & own.keys():
        kept.pop("pattern", None)
    return kept | own



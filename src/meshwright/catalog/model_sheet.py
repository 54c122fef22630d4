"""Models: blocks of ``data/models/*.yaml``, a Hugging Face ``config.json`` or a user's YAML file.

A block writes the facts in the words of ``domain.model``: ``attention``, ``mlp`` and ``experts`` hold for every layer.
Layers that differ are named in ``kinds`` (what a kind sets replaces the common fact) and laid out by ``pattern`` (runs)
or ``repeat`` (a cycle over ``layers``). Without ``kinds`` there are two: ``mlp`` and ``experts``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from meshwright.catalog.figures import Provenance, cited, converter
from meshwright.catalog.sheets import Names, Sheet, data_path, looks_like_path, read_sheet
from meshwright.catalog.shrinking import shrink
from meshwright.domain.model import Attention, LayerKind, MixtureOfExperts, Mlp, Model, NormKind, PositionEncoding
from meshwright.errors import InputError, Message, did_you_mean, fault
from meshwright.readers.hf_config import read_config
from meshwright.readers.limits import MAX_LAYERS, MAX_SIZE, refuse_giants
from meshwright.readers.structure import structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRecord:
    """What one kind of layer has of its own."""

    feed_forward: Literal["mlp", "experts"] | None = None
    window_tokens: int | None = None
    query_key_norm: Literal["none", "head", "full"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A block of the file after ``like`` is filled in; the keys that a contributor writes."""

    hidden: int
    vocabulary: int
    attention: Attention
    source: str
    mlp: Mlp | None = None
    experts: MixtureOfExperts | None = None
    kinds: dict[str, KindRecord] = field(default_factory=dict)
    layers: int | None = None
    pattern: tuple[dict[str, int], ...] = ()
    repeat: tuple[str, ...] = ()
    norms: int = 2
    parallel_block: bool = False
    norm: NormKind = "rms"
    position: PositionEncoding = "rope"
    position_table: int = 0
    rotary_base: float | None = None
    rotary_ratio: float = 1.0
    norm_epsilon: float | None = None
    tied_embeddings: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    num_mtp_layers: int = 0
    embedding_width: int | None = None
    max_sequence: int | None = None
    architecture: str = ""
    parameters: int | None = None
    """Published number of parameters, without multi-token prediction; a test holds the shape to it."""
    assumed: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


MAY_BE_ZERO = frozenset({"shared_width", "position_table", "num_mtp_layers", "norms"})


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
    record = _record(*_place(name))
    sheet, _ = _place(name)
    source = cited(record.source, sheet.sources)
    return {
        path: Provenance(
            value, "1" if isinstance(value, float) else "count", f"assumed: {source}" if path in record.assumed else source
        )
        for path, value in _numbers(record)
    }


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
    return _sheet(path), canonical


@cache
def _sheet(path: Path) -> Sheet:
    return read_sheet(path)


@cache
def _catalogued(name: str) -> Model:
    sheet, canonical = _place(name)
    return build_model(canonical, _record(sheet, canonical), sheet)


def _from_path(path: Path) -> Model:
    if path.is_dir():
        path /= "config.json"
    if path.suffix.lower() == ".json":
        return read_config(path)
    sheet = read_sheet(path)
    if len(sheet.models) != 1:
        raise fault("model.one", "holds {count} models, one is expected under 'models'", path=str(path), count=len(sheet.models))
    name = next(iter(sheet.models))
    return build_model(name, _record(sheet, name), sheet)


def _record(sheet: Sheet, name: str) -> ModelRecord:
    where = sheet.where("models", name)
    block = _filled(sheet, name, ())
    try:
        record = structure(converter(), block, ModelRecord, where=where)
    except InputError as error:
        said = {each.path for each in error.messages}
        raise InputError([*error.messages, *(each for each in _size_faults(block, where) if each.path not in said)]) from None
    faults = [
        Message(
            "model.range", "{value} is not within {low}..{high}", {"value": value, "low": low, "high": MAX_SIZE}, f"{where}.{path}"
        )
        for path, value in _numbers(record)
        if isinstance(value, int)
        and path != "parameters"
        and not (low := int(path.rpartition(".")[2] not in MAY_BE_ZERO)) <= value <= MAX_SIZE
    ]
    faults += _pattern_faults(record, where)
    if faults:
        raise InputError(faults)
    return record


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


def _pattern_faults(record: ModelRecord, where: str) -> Iterator[Message]:
    if record.mlp is None and record.experts is None:
        yield Message("model.feed_forward", "give mlp, experts or both", {}, where)
    kinds = _kinds(record)
    for name, kind in kinds.items():
        if kind.feed_forward and getattr(record, kind.feed_forward) is None:
            yield Message("model.kind", "kind {kind} needs {block}, which is missing",
                          {"kind": name, "block": kind.feed_forward}, where)
        elif kind.feed_forward is None and record.mlp and record.experts:
            yield Message("model.kind", "kind {kind} must say feed_forward: mlp or experts", {"kind": name}, where)
    given = {key for key in ("pattern", "repeat") if getattr(record, key)}
    num_layers = record.layers or sum(sum(run.values()) for run in record.pattern)
    if num_layers > MAX_LAYERS:
        most = {"layers": num_layers, "limit": MAX_LAYERS}
        yield Message("model.layers", "{layers} layers are more than {limit}", most, where)
    if len(given) == 2 or bool(record.pattern) == bool(record.layers):
        yield Message("model.pattern", "give pattern, or layers, or layers with repeat", {}, where)
    elif not given and len(kinds) > 1:
        yield Message("model.pattern", "layers of {count} kinds need pattern or repeat", {"count": len(kinds)}, where)
    for key in (*(name for run in record.pattern for name in run), *record.repeat):
        if key not in kinds:
            values = {"kind": key, "hint": did_you_mean(key, kinds), "known": list(kinds)}
            yield Message("model.kind", "unknown kind {kind!r}{hint}; known: {known}", values, where)


def _kinds(record: ModelRecord) -> dict[str, KindRecord]:
    if record.kinds:
        return record.kinds
    present = [name for name in ("mlp", "experts") if getattr(record, name) is not None]
    return {name: KindRecord(feed_forward="mlp" if name == "mlp" else "experts") for name in present}


def build_model(name: str, record: ModelRecord, sheet: Sheet) -> Model:
    """The value that the program works with; kinds that no layer has are left out."""
    kinds = _kinds(record)
    if record.pattern:
        names = tuple(kind for run in record.pattern for kind, count in run.items() for _ in range(count))
    else:
        cycle = record.repeat or tuple(kinds)
        names = tuple(cycle[index % len(cycle)] for index in range(record.layers or 0))
    used = tuple(dict.fromkeys(names))
    model = Model(
        name=name,
        hidden=record.hidden,
        vocabulary=record.vocabulary,
        kinds=tuple(_layer_kind(record, kinds[kind]) for kind in used),
        pattern=tuple(used.index(kind) for kind in names),
        norm=record.norm,
        position=record.position,
        position_table=record.position_table,
        rotary_base=record.rotary_base,
        rotary_ratio=record.rotary_ratio,
        norm_epsilon=record.norm_epsilon,
        tied_embeddings=record.tied_embeddings,
        head_bias=record.head_bias,
        embedding_norm=record.embedding_norm,
        final_norm=record.final_norm,
        num_mtp_layers=record.num_mtp_layers,
        embedding_width=record.embedding_width,
        max_sequence=record.max_sequence,
        architecture=record.architecture,
        source=cited(record.source, sheet.sources),
        assumed=record.assumed,
    )
    return refuse_giants(model, sheet.where("models", name))


def _layer_kind(record: ModelRecord, kind: KindRecord) -> LayerKind:
    own = {
        key: value
        for key, value in (("window_tokens", kind.window_tokens), ("query_key_norm", kind.query_key_norm))
        if value is not None
    }
    block = record.experts if (kind.feed_forward == "experts" or record.mlp is None) else record.mlp
    assert block is not None
    return LayerKind(
        attention=replace(record.attention, **own),  # type: ignore[arg-type]
        feed_forward=block,
        norms=record.norms,
        parallel_block=record.parallel_block,
    )


def _numbers(record: object, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every integer of a record with its path, and every fraction that the record itself gives."""
    for item in fields(record):  # type: ignore[arg-type]
        value = getattr(record, item.name)
        path = f"{prefix}{item.name}"
        if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value != item.default):
            yield path, value
        elif isinstance(value, (Attention, Mlp, MixtureOfExperts, KindRecord)) or (item.name == "latent" and value):
            yield from _numbers(value, f"{path}.")
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield from _numbers(entry, f"{path}.{key}.")
        elif item.name == "pattern":
            for index, run in enumerate(value):
                yield from ((f"{path}[{index}].{key}", count) for key, count in run.items())

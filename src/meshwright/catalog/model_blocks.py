"""Blocks that describe a model in the words of ``domain.model``: their keys, what is wrong with them, the model they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Literal

from msgspec import field

from meshwright.catalog.figures import cited
from meshwright.domain.attention import Attention
from meshwright.domain.mixers import MIXERS, GatedDelta, KimiDelta, Lightning, Mamba, Mamba2, ShortConvolution
from meshwright.domain.model import NO_BLOCK, LayerKind, Lookup, MixtureOfExperts, Mlp, Model, NormKind, PositionEncoding, Side
from meshwright.domain.tower import Tower
from meshwright.errors import Message, did_you_mean
from meshwright.readers.limits import MAX_LAYERS, refuse_giants
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshwright.catalog.sheets import Sheet
    from meshwright.domain.mixers import Mixer

NONE = "none"
"""What a kind says that has no attention, or no feed-forward block."""


class MixersRecord(Value, frozen=True, kw_only=True):
    """Linear mixers, each under the name by which kinds take it."""

    gated_delta: GatedDelta | None = None
    kimi_delta: KimiDelta | None = None
    mamba2: Mamba2 | None = None
    mamba: Mamba | None = None
    lightning: Lightning | None = None
    short_convolution: ShortConvolution | None = None

    @property
    def named(self) -> Mapping[str, Mixer]:
        """Those that are there, by name."""
        return {name: mixer for name in MIXERS if (mixer := getattr(self, name)) is not None}


class KindRecord(Value, frozen=True, kw_only=True):
    """What one kind of layer has of its own."""

    feed_forward: str | None = None
    """``mlp``, ``experts``, a name of ``mlps``, or ``none``."""
    attention: str | None = None
    """A name of ``attentions``, ``full`` for the common one, or ``none``; left out: the common one, or none beside a mixer."""
    mixer: str | None = None
    """A name of ``mixers``."""
    window_tokens: int | None = None
    query_key_norm: Literal["none", "head", "full"] | None = None


class ModelRecord(Value, frozen=True, kw_only=True):
    """A block of the file after ``like`` is filled in; the keys that a contributor writes."""

    hidden: int
    vocabulary: int
    source: str
    attention: Attention | None = None
    attentions: dict[str, Attention] = field(default_factory=dict)
    """Attention of kinds that differ in more than the window, by name."""
    mixers: MixersRecord = field(default_factory=MixersRecord)
    mlp: Mlp | None = None
    mlps: dict[str, Mlp] = field(default_factory=dict)
    """Dense blocks of other widths, by name."""
    experts: MixtureOfExperts | None = None
    kinds: dict[str, KindRecord] = field(default_factory=dict)
    layers: int | None = None
    pattern: tuple[dict[str, int], ...] = ()
    repeat: tuple[str, ...] = ()
    letters: str = ""
    """The kinds of all layers where their names are single letters."""
    norms: int = 2
    parallel_block: bool = False
    sides: tuple[Side, ...] = ()
    streams: int = 1
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
    num_mtp_passes: int = 0
    mtp_pattern: tuple[str, ...] = ()
    """Kinds of the layers of one multi-token-prediction layer."""
    embedding_width: int | None = None
    lookups: tuple[Lookup, ...] = ()
    front: tuple[Side, ...] = ()
    back: tuple[Side, ...] = ()
    tower: Tower | None = None
    vision: Mapping[str, object] = field(default_factory=dict)
    """``model_type``, ``architecture`` and ``vision_config`` of the multi-modal wrapper, as its file has them."""
    max_sequence: int | None = None
    architecture: str = ""
    parameters: int | None = None
    """Published number of parameters, without multi-token prediction; a test holds the shape to it."""
    assumed: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def blocks(self) -> Mapping[str, Mlp | MixtureOfExperts]:
        """Feed-forward blocks by the name under which a kind takes them."""
        both = {"mlp": self.mlp, "experts": self.experts}
        return {**{name: block for name, block in both.items() if block is not None}, **self.mlps, NONE: NO_BLOCK}

    @property
    def listed(self) -> tuple[str, ...]:
        """Kinds of the layers in order, as far as pattern or letters say them."""
        return tuple(self.letters) or tuple(kind for run in self.pattern for kind, count in run.items() for _ in range(count))


def block_faults(record: ModelRecord, where: str) -> Iterator[Message]:
    """What is wrong with the kinds of a block and with how they are laid out."""
    if len(record.blocks) == 1 and not record.mixers.named:
        yield Message("model.feed_forward", "give mlp, experts or both", {}, where)
    if record.attention is None and not record.attentions and not record.mixers.named:
        yield Message("key.missing", "is missing", {}, f"{where}.attention")
    if record.tower is not None:
        yield from _tower_faults(record.tower, f"{where}.tower")
    kinds = kinds_of(record)
    for name, kind in kinds.items():
        yield from _kind_faults(record, name, kind, where)
    given = [key for key in ("pattern", "repeat", "letters") if getattr(record, key)]
    num_layers = record.layers or sum(sum(run.values()) for run in record.pattern) or len(record.letters)
    if num_layers > MAX_LAYERS:
        most = {"layers": num_layers, "limit": MAX_LAYERS}
        yield Message("model.layers", "{layers} layers are more than {limit}", most, where)
    for key in ("num_mtp_layers", "num_mtp_passes"):
        if (count := getattr(record, key)) > MAX_LAYERS:
            yield Message("model.layers", "{layers} layers are more than {limit}", {"layers": count, "limit": MAX_LAYERS},
                          f"{where}.{key}")
    if record.letters and record.layers not in (None, len(record.letters)):
        yield Message("model.length", "has {length} entries for {count} layers",
                      {"length": len(record.letters), "count": record.layers}, f"{where}.letters")
    elif len(given) > 1 or bool(record.pattern or record.letters) == bool(record.layers and not record.letters):
        yield Message("model.pattern", "give pattern, or layers, or layers with repeat", {}, where)
    elif not given and len(kinds) > 1:
        yield Message("model.pattern", "layers of {count} kinds need pattern or repeat", {"count": len(kinds)}, where)
    runs = (name for run in record.pattern for name in run)
    for key in dict.fromkeys((*runs, *record.repeat, *record.letters, *record.mtp_pattern)):
        if key not in kinds:
            values = {"kind": key, "hint": did_you_mean(key, kinds), "known": list(kinds)}
            yield Message("model.kind", "unknown kind {kind!r}{hint}; known: {known}", values, where)


def _tower_faults(tower: Tower, where: str) -> Iterator[Message]:
    """What contradicts itself in a tower."""
    if not 0.0 < tower.image_ratio <= 1.0:
        values = {"value": tower.image_ratio, "low": 0, "high": 1}
        yield Message("model.range", "{value} is not within {low}..{high}", values, f"{where}.image_ratio")
    if tower.whole_layers > tower.layers:
        values = {"whole": tower.whole_layers, "layers": tower.layers}
        yield Message("model.tower-layers", "{whole} are more than its {layers} layers", values, f"{where}.whole_layers")
    if tower.heads and tower.hidden % tower.heads:
        values = {"heads": tower.heads, "hidden": tower.hidden}
        yield Message("config.heads", "{heads} does not divide hidden size {hidden}", values, f"{where}.heads")


def _kind_faults(record: ModelRecord, name: str, kind: KindRecord, where: str) -> Iterator[Message]:
    """What one kind takes that the block does not have."""
    if kind.feed_forward in ("mlp", "experts") and kind.feed_forward not in record.blocks:
        missing = {"kind": name, "block": kind.feed_forward}
        yield Message("model.kind", "kind {kind} needs {block}, which is missing", missing, where)
    elif kind.feed_forward is None and record.mlp and record.experts:
        yield Message("model.kind", "kind {kind} must say feed_forward: mlp or experts", {"kind": name}, where)
    elif kind.feed_forward is not None and kind.feed_forward not in record.blocks:
        yield from _unknown(name, "feed_forward", kind.feed_forward, record.blocks, where)
    attentions = {NONE, *record.attentions, *(["full"] if record.attention else [])}
    if kind.attention is not None and kind.attention not in attentions:
        yield from _unknown(name, "attention", kind.attention, attentions, where)
    if kind.mixer is not None and kind.mixer not in record.mixers.named:
        yield from _unknown(name, "mixer", kind.mixer, record.mixers.named or MIXERS, where)


def _unknown(kind: str, key: str, value: str, known: Iterable[str], where: str) -> Iterator[Message]:
    words = sorted(known)
    values = {"kind": kind, "key": key, "value": value, "hint": did_you_mean(value, words), "known": words}
    yield Message("model.kind-part", "kind {kind}: {key} {value!r} is not described{hint}; described: {known}", values, where)


def kinds_of(record: ModelRecord) -> dict[str, KindRecord]:
    """The kinds of a block by name; where it names none, one for each sort of feed-forward block."""
    if record.kinds:
        return record.kinds
    present = [name for name in ("mlp", "experts") if getattr(record, name) is not None]
    return {name: KindRecord(feed_forward=name) for name in present}


def build_model(name: str, record: ModelRecord, sheet: Sheet) -> Model:
    """The value that the program works with; kinds that no layer has are left out."""
    kinds = kinds_of(record)
    names = record.listed
    if not names:
        cycle = record.repeat or tuple(kinds)
        names = tuple(cycle[index % len(cycle)] for index in range(record.layers or 0))
    used = tuple(dict.fromkeys((*names, *record.mtp_pattern)))
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
        num_mtp_passes=record.num_mtp_passes,
        mtp_pattern=tuple(used.index(kind) for kind in record.mtp_pattern),
        embedding_width=record.embedding_width,
        lookups=record.lookups,
        front=record.front,
        back=record.back,
        tower=record.tower,
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
    usual = NONE if kind.mixer is not None or (record.attention is None and not record.attentions) else "full"
    chosen = kind.attention or usual
    attention = None if chosen == NONE else record.attentions.get(chosen, record.attention)
    block = record.blocks[kind.feed_forward] if kind.feed_forward else record.mlp or record.experts or NO_BLOCK
    return LayerKind(
        attention=attention and replace(attention, **own),  # type: ignore[arg-type]
        mixer=None if kind.mixer is None else record.mixers.named[kind.mixer],
        feed_forward=block,
        norms=record.norms,
        parallel_block=record.parallel_block,
        sides=record.sides,
        streams=record.streams,
    )


def numbers_of(record: object, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every integer of a record with its path, and every fraction that the record itself gives."""
    if isinstance(record, Mapping):  # a published configuration
        for key, value in record.items():
            if isinstance(value, Mapping):
                yield from numbers_of(value, f"{prefix}{key}.")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield f"{prefix}{key}", value
        return
    for item in fields(record):  # type: ignore[arg-type]
        value = getattr(record, item.name)
        path = f"{prefix}{item.name}"
        if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value != item.default):
            yield path, value
        elif is_dataclass(value):
            yield from numbers_of(value, f"{path}.")
        elif isinstance(value, dict):
            if item.name == "vision":
                yield from numbers_of(value, f"{path}.")
                continue
            for key, entry in value.items():
                yield from numbers_of(entry, f"{path}.{key}.")
        elif item.name == "pattern":
            for index, run in enumerate(value):
                yield from ((f"{path}[{index}].{key}", count) for key, count in run.items())
        elif isinstance(value, tuple):
            for index, entry in enumerate(value):
                if is_dataclass(entry):
                    yield from numbers_of(entry, f"{path}[{index}].")

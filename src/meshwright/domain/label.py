"""The compact label of a layout, read and written: ``tp8 pp4 vp2 dp16 mb1 sp zero1 recompute=full:2``.

Words stand in any order. An omitted degree is 1, an omitted ``dp`` follows from the number of devices, and the number
of micro-batches follows from the global batch. Beyond the contract's words, ``context=KIND`` names the kind of context
parallelism, ``shards=O,G,P`` sets three unequal shard groups, and ``shardnode`` is the data-parallel part of one node.
"""

from __future__ import annotations

import re
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args

from meshwright.domain.layout import (
    ContextKind,
    Full,
    Grid,
    Layout,
    Mixed,
    NoRecompute,
    Overlap,
    Recompute,
    Schedule,
)
from meshwright.domain.recompute_label import MODULES, known_names, list_word, parse_list, parse_recompute, recompute_word
from meshwright.errors import InputError, Message, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from meshwright.domain.model import Model

T = TypeVar("T")

__all__ = [
    "CONTEXT_KINDS", "DEGREES", "MAX_ZERO_STAGE", "MODULES", "OVERLAPS", "SCHEDULES", "label", "parse_layout", "parse_list",
    "parse_recompute", "recompute_word",
]
DEGREES = ("tp", "cp", "pp", "vp", "ep", "etp", "dp", "mb")
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)
OVERLAPS = {
    "grad": "gradient_reduce", "param": "parameter_gather", "tp": "tensor", "p2p": "point_to_point", "ep": "expert",
}
"""Word of ``overlap=`` -> field of ``Overlap``."""
MAX_ZERO_STAGE = 3
_NUMBER = re.compile(r"(tp|cp|pp|vp|ep|etp|dp|mb|zero|shard)=?([0-9]{1,9})")
_KEYS = ("recompute", "schedule", "offload", "overlap", "layers", "context", "shards")
_NO_RECOMPUTE: Recompute = NoRecompute()
_NO_NAMES: tuple[str, ...] = ()
_RING: ContextKind = "ring"
_WORDS = (*DEGREES, "zero", "shard", "shardnode", "sp", *_KEYS)


class _Shards(NamedTuple):
    """The three shard groups of a layout."""

    optimizer: int
    gradient: int
    parameter: int


def label(layout: Layout, *, overlap: Overlap | None = None) -> str:
    """The label that ``parse_layout`` reads back as this layout; ``overlap`` is the framework's, which goes unsaid."""
    default = overlap if overlap is not None else Overlap()
    degrees = dict(zip(DEGREES, (
        layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.virtual_stages,
        layout.expert_parallel, layout.expert_tensor_parallel, layout.data_parallel, layout.microbatch_sequences,
    ), strict=True))
    words = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1 or name in {"tp", "pp", "dp", "mb"}]
    words += ["sp"] * layout.sequence_parallel
    shards = _Shards(layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    words += [f"zero{layout.zero_stage}"]
    size = shards.optimizer
    if shards != _of_stage(layout.zero_stage, size):
        words[-1] = f"shards={shards.optimizer},{shards.gradient},{shards.parameter}"
    elif layout.zero_stage and size != layout.data_parallel * layout.context_parallel:
        words += [f"shard{size}"]
    words += [f"recompute={recompute_word(layout.recompute)}"] if layout.recompute != NoRecompute() else []
    implied = "interleaved" if layout.virtual_stages > 1 else "1f1b"
    words += [f"schedule={layout.schedule}"] if layout.schedule != implied else []
    words += [f"context={layout.context_kind}"] if layout.context_kind != "ring" else []
    words += [f"layers={list_word(layout.stage_layers)}"] if layout.stage_layers is not None else []
    words += [f"offload={','.join(layout.offload)}"] if layout.offload else []
    if layout.overlap != default:
        active = [word for word, name in OVERLAPS.items() if getattr(layout.overlap, name)]
        words += [f"overlap={','.join(active) or 'none'}"]
    return " ".join(words)


def parse_layout(
    text: str,
    *,
    num_devices: int,
    global_batch_sequences: int,
    devices_per_node: int = 8,
    model: Model | None = None,
    shards_over_context: bool = True,
    overlap: Overlap | None = None,
    max_idle_devices: int = 0,
) -> Layout:
    """Read a label; every fault of it is in the ``InputError``, one line each.

    ``shards_over_context``: ``zeroN`` alone shards over dp*cp, otherwise over dp. ``overlap``: what the framework does
    where the label is silent. ``max_idle_devices``: so many devices may be left unused. ``model`` checks stage layers.
    """
    reader = _Reader(text)
    word = reader.values
    tp, cp, pp, vp, ep, etp, dp, mb = (word.get(name, 1) for name in DEGREES)
    dp = reader.data_parallel(tp * cp * pp, num_devices, max_idle_devices)
    reader.check(
        (tp * cp * dp) % (ep * etp) == 0,
        "label.experts", "ep x etp = {ep} x {etp} does not divide the {ranks} devices of a stage (tp x cp x dp)",
        ep=ep, etp=etp, ranks=tp * cp * dp,
    )
    microbatches, rest = divmod(global_batch_sequences, dp * mb)
    reader.check(
        microbatches > 0 and rest == 0, "label.batch",
        "global batch {batch} is no multiple of dp x mb = {dp} x {mb} = {product}: micro-batches = batch / (dp x mb)",
        batch=global_batch_sequences, dp=dp, mb=mb, product=dp * mb,
    )
    shards = reader.shards(dp * (cp if shards_over_context else 1), dp * cp, max(1, devices_per_node // tp))
    recompute: Recompute = reader.value("recompute", parse_recompute, _NO_RECOMPUTE)
    recompute = reader.recompute(recompute, pp, vp)
    stage_layers = reader.value("layers", parse_list, None)
    if stage_layers is not None:
        stage_layers = reader.grid("layers", _over_chunks(stage_layers, vp), pp, vp)
        total = sum(map(sum, stage_layers))
        reader.check(
            model is None or total == model.num_layers,
            "label.layers", "layers= places {total} layers, {model} has {layers}",
            total=total, model=model and model.name, layers=model and model.num_layers,
        )
        reader.room(recompute, stage_layers)
    layout_overlap = reader.value("overlap", _overlap, overlap if overlap is not None else Overlap())
    offload = reader.value("offload", lambda names: _names(names, ("optimizer",), "offload"), _NO_NAMES)
    context_kind = reader.value("context", lambda name: _one(name, CONTEXT_KINDS, "context"), _RING)
    schedule = reader.schedule(vp)
    if reader.faults:
        raise InputError(reader.faults)
    return Layout(
        tensor_parallel=tp, sequence_parallel=word.get("sp", 0) == 1, context_parallel=cp, context_kind=context_kind,
        pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards.optimizer, gradient_shards=shards.gradient, parameter_shards=shards.parameter,
        microbatch_sequences=mb, num_microbatches=microbatches, recompute=recompute, schedule=schedule,
        stage_layers=stage_layers, offload=offload, overlap=layout_overlap,
    )


class _Reader:
    """The words of one label, and the faults found so far."""

    def __init__(self, text: str) -> None:
        self.faults: list[Message] = []
        self.values: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        tight = re.sub(r"\[[^\]]*\]", lambda found: re.sub(r"\s+", "", found[0]), text)
        for word in tight.lower().split():
            self._read(word)

    def check(self, holds: bool, id: str, template: str, **values: object) -> None:
        """Note a fault where a condition does not hold."""
        if not holds:
            self.faults.append(Message(id, template, values, path="layout"))

    def _read(self, word: str) -> None:
        """Sort one word into numbers and texts."""
        key, equals, text = word.partition("=")
        if found := _NUMBER.fullmatch(word):
            key, text = found[1], found[2]
            low = 0 if key == "zero" else 1
            self.check(int(text) >= low, "label.low", "{word}: must be at least {low}", word=word, low=low)
            self.check(key != "zero" or int(text) <= MAX_ZERO_STAGE, "label.zero", "{word}: ZeRO stages are 0 to 3", word=word)
            self._once(key, text, max(low, int(text)))
        elif word in {"sp", "sp=on", "sp=1", "sp=true", "sp=off", "sp=0", "sp=false"}:
            on = word in {"sp", "sp=on", "sp=1", "sp=true"}
            self._once("sp", "on" if on else "off", int(on))
        elif word in {"shardnode", "shard=node"}:
            self._once("shard", "node", 0)
        elif key in _KEYS and equals:
            self._once(key, text, 0)
        elif key in _WORDS or re.fullmatch(r"(tp|cp|pp|vp|ep|etp|dp|mb|zero|shard)[-+.0-9]+", word):
            stem = key.rstrip("-+.0123456789")
            example = f"{key}=..." if key in _KEYS else {"sp": "sp", "zero": "zero1"}.get(stem, f"{stem}8")
            self.check(
                False,
                "label.value",
                "{word!r} has no valid value; write it as in {example}",
                word=word,
                example=example,
            )
        else:
            stem = re.sub(r"[0-9]*$", "", key)
            self.check(
                False, "label.word", "unknown word {word!r}{hint}",
                word=word, hint=did_you_mean(stem, _WORDS) or f"; known: {' '.join(_WORDS)}",
            )

    def _once(self, key: str, text: str, value: int) -> None:
        """Keep a value, and note where it was given before with another."""
        before = self.texts.setdefault(key, text)
        same = before == text
        self.check(same, "label.twice", "{key} is given twice: {before} and {text}", key=key, before=before, text=text)
        self.values.setdefault(key, value)

    def value(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """The parsed text behind ``key=``, or the default where it is absent or wrong."""
        if key not in self.texts:
            return default
        try:
            return parse(self.texts[key])
        except InputError as error:
            self.faults += [Message(each.id, each.template, each.values, path="layout") for each in error.messages]
            return default

    def data_parallel(self, replica: int, num_devices: int, max_idle: int) -> int:
        """The given data parallelism, or what is left of the devices; a product that is not the world is a fault."""
        dp = self.values.get("dp", max(1, num_devices // replica))
        idle = num_devices - replica * dp
        self.check(
            0 <= idle <= max_idle, "label.world",
            "tp x cp x pp x dp = {replica} x {dp} = {used} devices, but the world is {num_devices}: {advice}",
            replica=replica, dp=dp, used=replica * dp, num_devices=num_devices,
            advice=f"{replica} does not divide it" if num_devices % replica else f"dp{num_devices // replica} fills it",
        )
        return dp

    def shards(self, group: int, world: int, node: int) -> _Shards:
        """The three shard groups from ``zero``, ``shard`` and ``shards``."""
        if "shards" in self.texts:
            ones: tuple[int, ...] = (1, 1, 1)
            sizes = self.value("shards", lambda text: parse_list(f"[{text}]")[0], ones)
            right = len(sizes) == len(_Shards._fields) and all(size and world % size == 0 for size in sizes)
            self.check(
                right and not {"zero", "shard"} & set(self.values), "label.shards",
                "shards={text}: three divisors of dp x cp = {world}, in place of zero and shard",
                text=self.texts["shards"], world=world,
            )
            return _Shards(*sizes) if right else _Shards(1, 1, 1)
        stage, size = self.values.get("zero", 0), self.values.get("shard", group)
        if self.texts.get("shard") == "node":
            size = gcd(group, node)
        self.check(
            "shard" not in self.values or stage > 0,
            "label.shard-alone", "shard{size} needs zero1, zero2 or zero3: there is nothing to shard", size=size,
        )
        self.check(
            group % size == 0 and (size > 1 or group == 1 or "shard" not in self.values), "label.shard",
            "shard{size} does not split the {group} data-parallel ranks: divisors above 1 do", size=size, group=group,
        )
        return _of_stage(stage, size)

    def grid(self, key: str, counts: Grid, stages: int, chunks: int) -> Grid:
        """Counts per chunk and stage, checked for their shape."""
        right = len(counts) == chunks and all(len(chunk) == stages for chunk in counts)
        self.check(
            right, "label.shape", "{key} needs {chunks} list(s) of {stages} counts (vp x pp), separated by ';'",
            key=key, chunks=chunks, stages=stages,
        )
        return counts

    def recompute(self, recompute: Recompute, stages: int, chunks: int) -> Recompute:
        """What is recomputed, its counts checked for their shape; one list under several chunks is each chunk's."""

        def repeated(counts: Grid) -> Grid:
            return counts * chunks if len(counts) == 1 else counts

        match recompute:
            case Full(layers=tuple(counts)):
                return Full(layers=self.grid("recompute", repeated(counts), stages, chunks))
            case Mixed(parts=parts):
                several = tuple((treatment, repeated(counts)) for treatment, counts in parts)
                self.grid("recompute", several[0][1], stages, chunks)  # all have one shape
                return Mixed(parts=several)
            case _:
                return recompute

    def room(self, recompute: Recompute, split: Grid) -> None:
        """A chunk that recomputes in several ways has the layers for it."""
        counts = recompute.counts if isinstance(recompute, Mixed) else ()
        both = [pair for rows in zip(counts, split, strict=False) for pair in zip(*rows, strict=False)]
        for wanted, layers in [pair for pair in both if pair[0] > pair[1]][:1]:
            self.check(
                False, "label.recompute-layers", "recompute= counts {wanted} layers of a chunk that has {layers}",
                wanted=wanted, layers=layers,
            )

    def schedule(self, chunks: int) -> Schedule:
        """The schedule; 1F1B over several chunks is the interleaved one."""
        implied: Schedule = "interleaved" if chunks > 1 else "1f1b"
        schedule = self.value("schedule", lambda name: _one(name, SCHEDULES, "schedule"), implied)
        self.check(
            schedule != "interleaved" or chunks > 1,
            "label.interleaved", "schedule=interleaved needs at least two chunks a stage: add vp2",
        )
        return implied if schedule == "1f1b" else schedule


def _of_stage(stage: int, size: int) -> _Shards:
    """Shard groups of a ZeRO stage over ``size`` ranks."""
    return _Shards(*(size if stage >= knob else 1 for knob in (1, 2, 3)))


def _over_chunks(lists: Grid, chunks: int) -> Grid:
    """One list under several chunks gives whole stages: spread them as evenly as possible, first chunks first."""
    if len(lists) != 1 or chunks == 1:
        return lists
    return tuple(tuple(count // chunks + (chunk < count % chunks) for count in lists[0]) for chunk in range(chunks))


def _names(text: str, known: Collection[str], noun: str) -> tuple[str, ...]:
    """A comma-separated list of known names; ``none`` is the empty one."""
    return () if text == "none" else known_names(text.split(","), known, noun)


def _one(name: str, known: tuple[T, ...], noun: str) -> T:
    """One name out of those known."""
    words = [str(each) for each in known]
    known_names((name,), words, noun)
    return known[words.index(name)]


def _overlap(text: str) -> Overlap:
    """The switches that are named are on, all others off."""
    active = {OVERLAPS[word] for word in _names(text, tuple(OVERLAPS), "overlap")}
    return Overlap(**{name: name in active for name in OVERLAPS.values()})

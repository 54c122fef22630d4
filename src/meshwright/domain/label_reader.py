"""The words of a label, one by one: numbers and texts, what each of them may say, and what is wrong with them."""

from __future__ import annotations

import re
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args

from meshwright.domain.layout import AttentionKernel, ContextKind, Full, Grid, Mixed, Overlap, Recompute, Schedule
from meshwright.domain.recompute_label import known_names, parse_list
from meshwright.errors import InputError, Message, nearest
from meshwright.text import LONGEST, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from meshwright.domain.model import Model

T = TypeVar("T")

DEGREES = ("tp", "cp", "pp", "vp", "ep", "etp", "dp", "mb")
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)
ATTENTION_KERNELS: tuple[AttentionKernel, ...] = get_args(AttentionKernel)
OVERLAPS = {
    "grad": "gradient_reduce", "param": "parameter_gather", "tp": "tensor", "p2p": "point_to_point", "ep": "expert",
}
"""Word of ``overlap=`` -> field of ``Overlap``."""
MAX_ZERO_STAGE = 3
_NUMBER = re.compile(r"(tp|cp|pp|vp|ep|etp|dp|mb|zero|shard)=?([0-9]{1,9})")
_KEYS = ("recompute", "schedule", "offload", "overlap", "layers", "context", "shards", "attention", "compile")
_WORDS = (*DEGREES, "zero", "shard", "shardnode", "sp", *_KEYS)


class Shards(NamedTuple):
    """The three shard groups of a layout."""

    optimizer: int
    gradient: int
    parameter: int


class Reader:
    """The words of one label, and the faults found so far."""

    def __init__(self, text: str) -> None:
        self.faults: list[Message] = []
        self.values: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.unsure: set[str] = set()
        """Keys whose number cannot be used: what follows from it by arithmetic is no news."""
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
            if int(text) < low:
                self.unsure.add(key)
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
            self.unsure.add(stem)
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
            self.check(False, "label.word", "unknown word {word!r}{hint}", word=word, hint=nearest(stem, _WORDS))

    def _once(self, key: str, text: str, value: int) -> None:
        """Keep a value, and note where it was given before with another."""
        before = self.texts.setdefault(key, text)
        both = {"before": shortened(before, LONGEST), "text": shortened(text, LONGEST)}
        self.check(before == text, "label.twice", "{key} is given twice: {before} and {text}", key=key, **both)
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

    def known(self, *keys: str) -> bool:
        """Whether none of these keys stands there with a number that cannot be used."""
        return self.unsure.isdisjoint(keys)

    def data_parallel(self, replica: int, num_devices: int | None, max_idle: int) -> int | None:
        """The given data parallelism, or what is left of the devices; a product that is not the world is a fault.

        None where it follows from something that is not known.
        """
        if num_devices is None or not self.known("tp", "cp", "pp", "dp"):
            return self.values.get("dp") if self.known("dp") else None
        dp = self.values.get("dp", max(1, num_devices // replica))
        idle = num_devices - replica * dp
        self.check(
            0 <= idle <= max_idle, "label.world",
            "tp x cp x pp x dp = {replica} x {dp} = {used} devices, but the world is {num_devices}: {advice}",
            replica=replica, dp=dp, used=replica * dp, num_devices=num_devices,
            advice=f"{replica} does not divide it" if num_devices % replica else f"dp{num_devices // replica} fills it",
        )
        return dp

    def shards(self, group: int, world: int, node: int) -> Shards:
        """The three shard groups from ``zero``, ``shard`` and ``shards``."""
        if "shards" in self.texts:
            ones: tuple[int, ...] = (1, 1, 1)
            sizes = self.value("shards", lambda text: parse_list(f"[{text}]")[0], ones)
            right = len(sizes) == len(Shards._fields) and all(size and world % size == 0 for size in sizes)
            self.check(
                right and not {"zero", "shard"} & set(self.values), "label.shards",
                "shards={text}: three divisors of dp x cp = {world}, in place of zero and shard",
                text=shortened(self.texts["shards"], LONGEST), world=world,
            )
            return Shards(*sizes) if right else Shards(1, 1, 1)
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
        return of_stage(stage, size)

    def grid(self, key: str, counts: Grid, stages: int, chunks: int) -> Grid:
        """Counts per chunk and stage, checked for their shape."""
        right = len(counts) == chunks and all(len(chunk) == stages for chunk in counts)
        self.check(
            right, "label.shape", "{key} needs {chunks} list(s) of {stages} counts (vp x pp), separated by ';'",
            key=key, chunks=chunks, stages=stages,
        )
        return counts

    def placed(self, lists: Grid | None, recompute: Recompute, stages: int, chunks: int, model: Model | None) -> Grid | None:
        """Layers by chunk and stage, checked for their shape, their sum, and room for what is recomputed."""
        if lists is None:
            return None
        split = self.grid("layers", over_chunks(lists, chunks), stages, chunks)
        total = sum(map(sum, split))
        self.check(
            model is None or total == model.num_layers,
            "label.layers", "layers= places {total} layers, {model} has {layers}",
            total=total, model=model and model.name, layers=model and model.num_layers,
        )
        self.room(recompute, split)
        return split

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
        schedule = self.value("schedule", lambda name: one(name, SCHEDULES, "schedule"), implied)
        self.check(
            schedule != "interleaved" or chunks > 1,
            "label.interleaved", "schedule=interleaved needs at least two chunks a stage: add vp2",
        )
        return implied if schedule == "1f1b" else schedule


def of_stage(stage: int, size: int) -> Shards:
    """Shard groups of a ZeRO stage over ``size`` ranks."""
    return Shards(*(size if stage >= knob else 1 for knob in (1, 2, 3)))


def over_chunks(lists: Grid, chunks: int) -> Grid:
    """One list under several chunks gives whole stages: spread them as evenly as possible, first chunks first."""
    if len(lists) != 1 or chunks == 1:
        return lists
    return tuple(tuple(count // chunks + (chunk < count % chunks) for count in lists[0]) for chunk in range(chunks))


def names(text: str, known: Collection[str], noun: str) -> tuple[str, ...]:
    """A comma-separated list of known names; ``none`` is the empty one."""
    return () if text == "none" else known_names(text.split(","), known, noun)


def one(name: str, known: tuple[T, ...], noun: str) -> T:
    """One name out of those known."""
    words = [str(each) for each in known]
    known_names((name,), words, noun)
    return known[words.index(name)]


def overlap_of(text: str) -> Overlap:
    """The switches that are named are on, all others off."""
    active = {OVERLAPS[word] for word in names(text, tuple(OVERLAPS), "overlap")}
    return Overlap(**{name: name in active for name in OVERLAPS.values()})

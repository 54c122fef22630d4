"""Pinned knobs: ``--pin tp=8``. Values are checked alone, then against each other."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from meshwright.domain.label import CONTEXT_KINDS, MAX_ZERO_STAGE, SCHEDULES, parse_recompute, recompute_word
from meshwright.errors import fault, nearest
from meshwright.text import LONGEST, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.fields import Faults

NUMBERS = ("tp", "cp", "pp", "vp", "ep", "etp", "dp", "mb", "shard")
WORDS = {"schedule": SCHEDULES, "offload": ("none", "optimizer"), "cp_kind": CONTEXT_KINDS}
"""Knobs whose value is a word, and the words."""
KNOBS = (*NUMBERS, "zero", "recompute", "sp", *WORDS)
SWITCH = {"on": "on", "true": "on", "1": "on", "yes": "on", "off": "off", "false": "off", "0": "off", "no": "off"}
Pin = tuple[str, str]


def pin(word: str) -> Pin:
    """``KNOB=VALUE`` as the knob and the value in its one spelling."""
    knob, equals, value = (part.strip().lower() for part in word.partition("="))
    if knob not in KNOBS:
        raise fault("pin.knob", "unknown knob {knob!r}{hint}", knob=knob, hint=nearest(knob, KNOBS))
    if not equals or not value:
        raise fault("pin.form", "{word!r} has no value: write {knob}=VALUE", word=word, knob=knob)
    return knob, _value(knob, value)


def _value(knob: str, value: str) -> str:
    """The value of a knob in its one spelling."""
    match knob:
        case "recompute":
            word = recompute_word(parse_recompute(value))
            if word.startswith("full:") or "[" in word:
                raise fault("pin.recompute-layers", "recompute={value}: counts of layers are refined, pin full", value=value)
            return word
        case "sp" if value in SWITCH:
            return SWITCH[value]
        case _ if knob in WORDS:
            if value not in WORDS[knob]:
                hint = nearest(value, WORDS[knob])
                raise fault(f"pin.{knob}", "unknown {knob} {value!r}{hint}", knob=knob, value=value, hint=hint)
            return value
    if knob != "sp" and value.isascii() and value.isdigit() and len(value) <= len("100000000"):
        number = int(value)
        if number <= MAX_ZERO_STAGE if knob == "zero" else number >= 1:
            return str(number)
    expected = {"sp": "on or off", "zero": f"0 to {MAX_ZERO_STAGE}"}.get(knob, "a number from 1")
    raise fault("pin.value", "{knob}={value} is wrong: {expected}", knob=knob, value=shortened(value, LONGEST), expected=expected)


def consistent(pins: Sequence[Pin], faults: Faults) -> dict[str, str]:
    """The pins as one mapping; those that contradict each other are faults."""
    result: dict[str, str] = {}
    for knob, value in pins:
        if result.setdefault(knob, value) != value:
            faults.add("pin.twice", "{knob} is pinned to both {one} and {other}", path="--pin",
                       knob=knob, one=result[knob], other=value)
    number = {knob: int(value) for knob, value in result.items() if value.isdigit()}
    group = number.get("dp", 0) * number.get("cp", 1)
    chunks, schedule = number.get("vp"), result.get("schedule")
    for wrong, id, template in (
        (number.get("zero") == 0 and number.get("shard", 1) > 1, "pin.shard",
         "zero=0 and shard={shard} contradict each other: without ZeRO nothing is sharded"),
        (schedule == "interleaved" and chunks == 1, "pin.interleaved",
         "schedule=interleaved and vp=1 contradict each other: interleaving needs vp of at least 2"),
        (schedule == "1f1b" and (chunks or 1) > 1, "pin.1f1b",
         "schedule=1f1b and vp={vp} contradict each other: several chunks a stage are schedule=interleaved"),
        (number.get("pp") == 1 and (chunks or 1) > 1, "pin.virtual",
         "pp=1 and vp={vp} contradict each other: virtual stages need a pipeline"),
        (number.get("tp") == 1 and result.get("sp") == "on", "pin.sequence",
         "tp=1 and sp=on contradict each other: sequence parallelism shards over tp"),
        (number.get("cp") == 1 and "cp_kind" in result, "pin.context",
         "cp=1 and cp_kind={cp_kind} contradict each other: the kind is that of context parallelism"),
        (group > 0 and "cp" in number and group % number.get("shard", 1) != 0, "pin.divide",
         "shard={shard} does not divide dp x cp = {group}"),
    ):
        if wrong:
            faults.add(id, template, path="--pin", group=group, **{"shard": "", "vp": "", "cp_kind": "", **result})
    return result


def divides(pins: Mapping[str, str], num_devices: int) -> None:
    """Refuse pinned degrees whose product does not divide the devices."""
    degrees = {knob: int(pins[knob]) for knob in ("tp", "cp", "pp", "dp") if knob in pins}
    product = prod(degrees.values())
    if num_devices % product:
        pinned = " x ".join(f"{knob}{degree}" for knob, degree in degrees.items() if degree > 1)
        pinned += f" = {product}" if " x " in pinned else ""
        raise fault("pin.world", "{pinned} does not divide the {num_devices} devices", pinned=pinned, num_devices=num_devices)

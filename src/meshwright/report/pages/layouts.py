"""A layout knob by knob, as the answer of a page: what a label says in words of few letters, in names that people use."""

from __future__ import annotations

import re

from meshwright.report.blocks import Strip

DEGREES = {
    "tp": "tensor", "cp": "context", "pp": "pipeline", "vp": "virtual stages", "ep": "expert", "etp": "expert tensor", "dp": "data",
    "mb": "micro-batch", "zero": "ZeRO stage", "shard": "shard group",
}
"""Words of a label that end with a number -> names."""
SWITCHES = {"sp": ("sequence parallel", "on"), "shardnode": ("shard group", "node")}
NAMES = {
    "recompute": "recomputed", "schedule": "schedule", "context": "kind of context", "layers": "layers of the stages",
    "offload": "offloaded", "attention": "attention", "compile": "compiled", "overlap": "overlap", "shards": "shard groups",
}
"""Words of a label before a sign of equality -> names."""


def strip(label: str) -> Strip:
    """The knobs of a label, in its order; a word that nobody knows stands as it is.

    >>> strip("tp4 pp2 sp recompute=full").knobs
    (('tensor', '4'), ('pipeline', '2'), ('sequence parallel', 'on'), ('recomputed', 'full'))
    """
    return Strip(knobs=tuple(map(_knob, label.split())), label=label)


def _knob(word: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if sign:
        return NAMES.get(name, name), value.replace(",", ", ").replace(";", "; ") if name == "layers" else value
    found = re.fullmatch(r"([a-z]+)(\d+)", word)
    if found and found[1] in DEGREES:
        return DEGREES[found[1]], found[2]
    return SWITCHES.get(word, (word, "on"))

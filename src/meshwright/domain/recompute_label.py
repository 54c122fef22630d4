"""What is recomputed, in the words of a label: ``selective:core_attn``, ``full:[3,2,1,0]+selective:mlp_act:[1,1,1,1]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Grid, Mixed, NoRecompute, Recompute, Selective, ordered_parts
from meshwright.errors import InputError, Message, did_you_mean, fault, nearest
from meshwright.text import LONGEST, shortened

if TYPE_CHECKING:
    from collections.abc import Collection

MODULES = ("core_attn", "layernorm", "mlp", "mlp_act", "comm", "moe_act", "moe", "mla_up_proj", "shared_experts", "attn_proj", "op")
"""What selective recomputation can name: parts of a layer by what is run again, whatever a framework calls them.

``mlp_act`` is the gated activation of a dense block, ``comm`` the gathering of what sequence parallelism cut, ``attn_proj`` the
output projection of attention, and ``op`` is torchtitan's policy by operator, which drops every second product and every pass.
"""


def parse_list(text: str) -> Grid:
    """Counts per chunk and stage: ``[20,20,21,19]`` is one chunk, ``[10,10;10,10]`` two."""
    if not re.fullmatch(r"\[[0-9]{1,9}([,;][0-9]{1,9})*\]", text):
        raise fault("label.list", "{text!r} is not a list of counts such as [20,20,21,19] or [10,10;10,10]", text=text)
    return tuple(tuple(int(count) for count in chunk.split(",")) for chunk in text[1:-1].split(";"))


def list_word(lists: Grid) -> str:
    """Counts as ``[a,b;c,d]``."""
    return f"[{';'.join(','.join(map(str, chunk)) for chunk in lists)}]"


def parse_recompute(text: str) -> Recompute:
    """A treatment of all layers, or several with their counts by chunk and stage.

    ``none``, ``selective``, ``selective:MODULES``, ``full``, ``full:k``; ``full:[k,k;k,k]``, ``selective:MODULES:[k,k;k,k]``, and
    those two kinds joined by ``+``.
    """
    words = text.split("+")
    if len(words) == 1 and not (text.startswith("selective:") and text.endswith("]")):
        return _plain_recompute(text)
    parts: list[tuple[Selective | Full, Grid]] = []
    faults: list[Message] = []
    for word in words:
        try:
            parts.append(_part(word))
        except InputError as error:
            faults += error.messages
    if faults:
        raise InputError(faults)
    treatments = [frozenset(treatment.modules) if isinstance(treatment, Selective) else None for treatment, _ in parts]
    if twice := [word for word, treatment in zip(words, treatments, strict=True) if treatments.count(treatment) > 1]:
        raise fault("label.recompute-twice", "recompute={text} counts {part} twice", text=shortened(text, LONGEST),
                    part=shortened(twice[0].rpartition(":")[0], LONGEST))
    shapes = {(len(counts), *map(len, counts)) for _, counts in parts}
    if len(shapes) > 1:
        raise fault("label.recompute-shape", "recompute={text}: the lists have not the same shape", text=shortened(text, LONGEST))
    match ordered_parts(parts):
        case ():
            return NoRecompute()
        case ((Full(), counts),):
            return Full(layers=counts)
        case some:
            return Mixed(parts=some)


def _plain_recompute(text: str) -> Recompute:
    """One treatment."""
    kind, colon, rest = text.partition(":")
    match kind:
        case "none" if not colon:
            return NoRecompute()
        case "full" if not colon:
            return Full()
        case "full" if re.fullmatch("[0-9]{1,9}", rest):
            return Full(layers=int(rest))
        case "full":
            return Full(layers=parse_list(rest))
        case "selective":
            return Selective(modules=known_names(rest.split(","), MODULES, "recompute module")) if colon else Selective()
    raise fault(
        "label.recompute",
        "recompute={text} is none of none, selective:MODULES, full, full:k, full:[k,k,...], or parts with lists joined by +{hint}",
        text=shortened(text, LONGEST), hint=did_you_mean(kind, ("none", "selective", "full")),
    )


def _part(word: str) -> tuple[Selective | Full, Grid]:
    """One of several treatments, with its counts: ``full:[3,2]``, ``selective:mlp_act:[1,1]``."""
    name, _, counts = word.rpartition(":")
    treatment = _plain_recompute(name) if name else None
    if not (isinstance(treatment, Selective) or treatment == Full()):
        raise fault(
            "label.recompute-part", "{word!r} in recompute= needs layers by stage, as in full:[3,2,1]+selective:mlp_act:[1,1,1]",
            word=word,
        )
    assert isinstance(treatment, (Selective, Full))
    return treatment, parse_list(counts)


def recompute_word(recompute: Recompute) -> str:
    """The value in the grammar that ``parse_recompute`` reads."""
    match recompute:
        case NoRecompute():
            return "none"
        case Selective(modules=modules):
            return f"selective:{','.join(modules)}"
        case Mixed(parts=parts):
            return "+".join(f"{recompute_word(treatment)}:{list_word(counts)}" for treatment, counts in parts)
        case Full(layers=None):
            return "full"
        case Full(layers=layers):
            return f"full:{list_word(layers) if isinstance(layers, tuple) else layers}"


def known_names(names: Collection[str], known: Collection[str], noun: str) -> tuple[str, ...]:
    """The names, each of them known."""
    faults = [
        Message("label.name", "unknown {noun} {name!r}{hint}", {"noun": noun, "name": name, "hint": nearest(name, known)})
        for name in names if name not in known
    ]
    if faults:
        raise InputError(faults)
    return tuple(dict.fromkeys(names))

"""Which framework can train a model at all: what a model has beyond attention and feed-forward blocks, and who builds that.

``parts.csv``: one row for each part that a framework has, since which release and by which arguments; one that builds its models
with another has that one's. A framework without any row, such as a plugin's, is not judged.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.domain.mixers import MIXER_NAMES
from meshwright.errors import Message
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.model import Model

CLASS, CORE, TOWER = "class", "core", "vision tower"
"""Parts that stand for every class of transformers (``class NAME``: for one), for what another framework builds, and for a tower in
front of the layers."""


class Builder(Struct, frozen=True, kw_only=True):
    """A part that a framework has: since its first release, or one, until its last, or one."""

    framework: str
    part: str
    since: str
    until: str
    written: bool
    how: str


@cache
def parts_of(model: Model) -> tuple[str, ...]:
    """What a model has beyond softmax attention and feed-forward blocks, in the words of ``parts.csv``; of most models nothing."""
    attentions, kinds = model.attentions, model.kinds
    choosing = [each for each in attentions if each.selected_tokens is not None]
    found = {
        **{MIXER_NAMES[type(mixer)]: True for mixer in model.mixers},
        "attention beside a mixer": any(kind.attention is not None and kind.mixer is not None for kind in kinds),
        "layers of one block": any(kind.mixes != kind.has_block for kind in kinds),
        "gate on attention": any(each.gate == "full" for each in attentions),
        "gate on each head": any(each.gate == "head" for each in attentions),
        "compressed attention": any(each.compressed for each in attentions),
        "sparse attention": any(each.latent for each in choosing),
        "sparse attention over blocks of keys": any(not each.latent and not each.compressed for each in choosing),
        "values of another width than their keys": any(each.value_head_dim not in {None, each.head_dim} for each in attentions),
        "sinks in latent attention": any(each.latent and each.sinks for each in attentions),
        "indices shared between layers": any(each.indexer is None for each in choosing) and not all(
            each.indexer is None for each in choosing),
        "keys that are values": any(each.shared_key_value for each in attentions),
        "keys and values of another layer": any(each.borrows_key_value for each in attentions),
        "experts in a latent space": any(kind.experts and kind.experts.latent for kind in kinds),
        "several residual streams": any(kind.streams > 1 for kind in kinds),
        "projections beside its layers": any(kind.sides and kind.streams == 1 for kind in kinds) or bool(model.front or model.back),
        "tables beside its embedding": bool(model.lookups),
        TOWER: model.tower is not None,
    }
    return tuple(part for part, there in found.items() if there)


@cache
def builders() -> tuple[Builder, ...]:
    """The rows of ``parts.csv``."""
    return tuple(
        Builder(**{key: row[key] for key in ("framework", "part", "since", "until", "how")}, written=row["written"] == "yes")
        for row in rows(__package__, "parts.csv")
    )


@cache
def lacking(framework: str, title: str, release: str, releases: tuple[str, ...], model: Model) -> Message | None:
    """Why a framework at a release cannot train a model, and which can; None where nothing of the model stands against it."""
    wanted = parts_of(model)
    if not wanted or takes_class(framework, release, releases, model):
        return None
    below, core = _below(framework, release)
    known = [row for row in builders() if row.framework == below]
    if not known:
        return None
    own = {
        row.part: row for row in builders()
        if row.framework == framework != below and row.part != CORE and _within(row, release, releases)
    }
    reasons = [
        reason for part in wanted
        if (reason := _unwritten(own[part]) if part in own else _reason(part, known, core, _releases(below), model))
    ]
    if not reasons:
        return None
    asked = f"{framework}@{release}"
    others = [name for name in able(model) if asked not in {name, f"{name}@{_release_of(name)}"}]
    return Message(
        "framework.parts", "{title} {release} cannot train {model} with what is written here: {reasons}{others}",
        {"title": title, "release": release, "model": model.name, "reasons": "; ".join(reasons),
         "others": f"; --framework {' or '.join(others)} can" if others else "; no framework here can"}, path="model",
    )


def class_of(model: Model) -> str:
    """The class of transformers that has all of a model, its tower too; empty where there is none."""
    return model.architecture if model.tower is None else model.tower.architecture


@cache
def takes_class(framework: str, release: str, releases: tuple[str, ...], model: Model) -> bool:
    """Whether a framework at a release builds the model from the files of its class (Megatron-Bridge: AutoBridge)."""
    part = f"{CLASS} {class_of(model)}"
    return any((row.framework, row.part) == (framework, part) and _within(row, release, releases) for row in builders())


def _below(framework: str, release: str) -> tuple[str, str]:
    """The framework that builds a framework's models, and its release; a framework's own where it does so itself."""
    cores = [row for row in builders() if (row.framework, row.part) == (framework, CORE)]
    there = next((row for row in cores if row.since == release), cores[-1] if cores else None)
    name, _, version = (there.how if there else f"{framework} {release}").partition(" ")
    return name, version


def _reason(part: str, known: list[Builder], release: str, releases: tuple[str, ...], model: Model) -> str:
    """What is wrong with one part; empty where nothing is."""
    if any(row.part == CLASS for row in known):
        return "" if class_of(model) else "no class of transformers is exactly this model"
    having = [row for row in known if row.part == part]
    there = next((row for row in having if _within(row, release, releases)), None)
    if there is not None:
        return _unwritten(there)
    if having:
        return f"{part} is there since {having[0].since} ({having[0].how})"
    return f"it has no {part}"


def _unwritten(row: Builder) -> str:
    """That a part is there and nothing here asks for it; empty where something does."""
    return "" if row.written else f"{row.part} ({row.how}) has no writer here"


def _within(row: Builder, release: str, releases: tuple[str, ...]) -> bool:
    """Whether a release is among those of a row."""
    if release not in releases:
        return not row.since and not row.until
    place = releases.index(release)
    first = releases.index(row.since) if row.since else 0
    last = releases.index(row.until) if row.until else len(releases) - 1
    return first <= place <= last


def _releases(name: str) -> tuple[str, ...]:
    """The releases of a framework."""
    from meshwright.frameworks import framework

    return framework(name).releases


@cache
def able(model: Model) -> tuple[str, ...]:
    """Frameworks that train a model with what is written here: by name where the release that is meant does, else by the first
    later release that does (``megatron@0.19``)."""
    from meshwright.frameworks import framework

    found = []
    for name in dict.fromkeys(row.framework for row in builders()):
        there = framework(name)
        release = first_release(there.version, there.releases, partial(_builds, name, model))
        if release is not None:
            found.append(name if release == there.version else f"{name}@{release}")
    return tuple(found)


def first_release(meant: str, releases: tuple[str, ...], trains: Callable[[str], bool]) -> str | None:
    """The release that is meant where none is named, where that one trains something, else the first later one that does, else
    None."""
    place = releases.index(meant) if meant in releases else -1
    return next((each for each in (meant, *releases[place + 1 :]) if trains(each)), None)


def _builds(name: str, model: Model, release: str) -> bool:
    """Whether a framework at a release has every part of a model."""
    if takes_class(name, release, _releases(name), model):
        return True
    below, core = _below(name, release)
    known = [row for row in builders() if row.framework == below]
    return all(not _reason(part, known, core, _releases(below), model) for part in parts_of(model))


def _release_of(name: str) -> str:
    """The release of a framework that is meant where none is named."""
    from meshwright.frameworks import framework

    return "" if "@" in name else framework(name).version

"""How a framework's files say the settings of a launch: keys, variables, or words where there is no key.

``launching.csv`` holds one row for each way; ``Framework.write`` looks them up once and hands them to the writer, and
``Framework.read`` reads those back that the adapter does not read by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from meshwright.domain.launch import COUNTS, KNOWN, NAMES, SETTINGS, launch_words
from meshwright.domain.launching import settings_of
from meshwright.errors import Message
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.domain.case import Case

OWN: Mapping[str, str] = {
    **{name: values[0] for name, values in SETTINGS.items()}, **dict.fromkeys(NAMES, "none"), **dict.fromkeys(COUNTS, "0"),
    "routing": "natural",
}
"""Setting -> what it is where nothing is said: said only where somebody chose it."""
WRITER, ALWAYS = "writer", "always"


class Way(Struct, frozen=True, kw_only=True):
    """A row of the table: how a setting of one value (``*``: any) is said over a span of releases, for dense or mixed models."""

    framework: str
    since: str
    until: str
    setting: str
    value: str
    models: str
    read: bool
    keys: Mapping[str, object]
    without: frozenset[str]
    variables: Mapping[str, str]
    by_writer: bool
    always: bool
    """Whether it is said though nobody chose it, for the framework by itself does otherwise."""
    words: str

    def fits(self, release: str, releases: tuple[str, ...]) -> bool:
        """Whether the row is for a release."""
        if not (self.since or self.until):
            return True
        first, last = releases.index(self.since or releases[0]), releases.index(self.until or releases[-1])
        return first <= releases.index(release) <= last

    @property
    def carried(self) -> bool:
        """Whether the files make the run what the setting says."""
        return self.by_writer or bool(self.keys or self.without)


class Told(Struct, frozen=True, kw_only=True):
    """What files say of a launch, beside what the writer says by itself."""

    keys: Mapping[str, object] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    """Keys and variables that the writer is to leave out."""
    variables: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variable of the environment -> its value, and the setting that asks for it."""
    remarks: tuple[Message, ...] = ()
    """What the files do not carry, and what to mind of what they do."""


SILENT = Told()


def chosen_of(case: Case) -> dict[str, str]:
    """Settings that somebody chose, or that are not what every run has by itself."""
    return {name: value for name, value in settings_of(case).items() if name in case.launch.given or value != OWN.get(name)}


def told_of(case: Case, *, framework: str, title: str, release: str, releases: tuple[str, ...]) -> Told:
    """How a framework's files at a release say the launch of a case."""
    among = partial(way_of, framework=framework, release=release, releases=releases, is_moe=case.model.is_moe)
    chosen = chosen_of(case)
    found = [(name, value, way) for name, value in settings_of(case).items()
             if (way := among(name, value)) is not None and (way.always or name in chosen)]
    return Told(
        keys={key: each for _, _, way in found if not way.by_writer for key, each in way.keys.items()},
        without=frozenset().union(*(way.without for _, _, way in found)),
        variables={key: (each, f"{name}={value}") for name, value, way in found for key, each in way.variables.items()},
        remarks=tuple(
            Message("launch.said" if way.carried else "launch.unsaid", way.words,
                    {"name": name, "value": value, "title": title, "release": release})
            for name, value, way in found if way.words
        ),
    )


def read_launch(source: Source, said: str | None, *, framework: str, release: str, releases: tuple[str, ...]) -> str | None:
    """Settings of a launch that keys of the table say, under those that the adapter has read by itself."""
    found = {
        way.setting: way.value for way in ways()
        if way.framework == framework and way.read and way.fits(release, releases)
        and all(source.value(key) == value for key, value in way.keys.items())
    }
    return launch_words(found | said_settings(said)) or None


def said_settings(said: str | None) -> dict[str, str]:
    """Settings of ``Said.launch`` apart, whether or not they agree."""
    return dict(word.split("=", 1) for word in (said or "").split())


def way_of(
    name: str, value: str, *, framework: str, release: str, releases: tuple[str, ...], is_moe: bool
) -> Way | None:
    """The first row that fits; None where every run has the value by itself."""
    models = "moe" if is_moe else "dense"
    return next((
        way for owner in (framework, "*") for way in ways()
        if way.framework == owner and way.setting == name and way.value in {value, "*"} and way.models in {"", models}
        and way.fits(release, releases) and not (way.value == "*" and value == OWN.get(name))
    ), None)


@cache
def ways() -> tuple[Way, ...]:
    """The rows of the table, in its order."""
    return tuple(_read_way(row) for row in rows(__package__, "launching.csv"))


def _read_way(row: Mapping[str, str]) -> Way:
    """A row with its keys apart; one of no setting is our mistake."""
    assert row["setting"] in KNOWN, f"{row['setting']} is no setting of a launch"
    words = [word for word in row["keys"].split() if word not in {WRITER, ALWAYS}]
    return Way(
        **{name: row[name] for name in ("framework", "since", "until", "setting", "value", "models", "words")},
        read=row["read"] == "yes", by_writer=WRITER in row["keys"].split(), always=ALWAYS in row["keys"].split(),
        keys=dict(_key(word) for word in words if word[0] not in "!$"),
        without=frozenset(word[1:] for word in words if word[0] == "!"),
        variables=dict(_variables(words)),
    )


def _key(word: str) -> tuple[str, object]:
    """``KEY=VALUE`` apart: JSON where it is any, else text; a bare key is a switch."""
    key, equals, text = word.partition("=")
    value: object = text
    with suppress(ValueError):
        value = json.loads(text) if equals else True
    return key, value


def _variables(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        if word[0] == "$":
            name, _, value = word[1:].partition("=")
            yield name, value

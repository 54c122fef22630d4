"""Keys against the surface of the framework: unknown ones, those of other releases, wrong types, and keys given twice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.documents.opening import is_script
from meshwright.documents.source import UNKNOWN, Around
from meshwright.errors import InputError, Message
from meshwright.frameworks.settings import Finding
from meshwright.frameworks.surface import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.documents.source import Setting
    from meshwright.frameworks.surface import Key, Surface

_BLANK = re.compile(r"<[A-Za-z][^<>\n]*>")


def keys(context: Context) -> Iterator[Finding]:
    """Every key that the release does not know, in the framework's words, and every value that its parser would refuse."""
    if context.framework.surface is None:
        context.skipped.append(f"{context.framework.title} declares no table of its keys: unknown keys are not found")
        return
    surface, release = context.framework.surface(), context.reading.version
    judged = {str(message.values.get("key")) for message in context.reading.messages if message.id.startswith("setting.")}
    takes_flags = any(key.startswith("-") for key in surface.keys)
    read_as_keys = {each.path for each in context.reading.source.documents if isinstance(each, Around)}
    for setting in context.reading.source.settings.values():
        only_launches = is_script(setting.file) and not takes_flags and setting.file not in read_as_keys
        if setting.file in context.strangers or only_launches:
            continue
        known = surface.find(setting.key, release)
        if known is None:
            if not surface.inside(setting.key, release):
                yield from _unknown(context, surface, setting)
        elif setting.key not in judged:
            yield from _wrong(known, setting)


def _unknown(context: Context, surface: Surface, setting: Setting) -> Iterator[Finding]:
    """A key that is not of this release; nothing where extra keys are the framework's own custom."""
    said = context.framework.unknown_keys(setting.key)
    if said is None:
        return
    severity, words = said
    adds = context.framework.adds_keys(context.reading.source)
    span = surface.span(setting.key)
    if adds and severity == "error":
        severity, words = "warning" if span else "advice", "{key} is none of {title}'s: {adds} must add it"
    fork = context.framework.forks().get(setting.key)
    words += ": a key of {fork} fork, which {title} does not have" if fork else "{hint}"
    name, release = context.framework.name, context.reading.version
    yield finding(
        severity, f"{name}.other-release" if span else f"{name}.unknown-key",
        words + (" (release {release})" if span else ""),
        path=setting.place, value=setting.value, expected=span or None, key=setting.key, release=release,
        adds=adds, title=context.framework.title, fork=fork,
        hint=surface.hint(setting.key, release), source=f"{context.framework.title} {release}",
    )


def _is_blank(word: object) -> bool:
    """Whether documentation left a word to be filled in: ``<some dir>``."""
    return isinstance(word, str) and _BLANK.search(word) is not None


def _wrong(known: Key, setting: Setting) -> Iterator[Finding]:
    """A value that is not of the key's type, or none of its choices."""
    if setting.value is None or setting.value is UNKNOWN:
        return
    words = setting.value if isinstance(setting.value, tuple) else (setting.value,)
    if (len(words) > 1 and known.kind == "str" and str(words[0]).lower() == "your") or any(map(_is_blank, words)):
        yield finding(
            "warning", "setting.blank", "{key} is still a blank of a template: {words}", path=setting.place, key=setting.key,
            value=setting.value, words=" ".join(map(str, words)),
        )
        return
    try:
        typed(known, setting.value)
    except InputError as error:
        for each in error.messages:
            message = Message(each.id, each.template, each.values, setting.place)
            expected = list(known.choices) or known.kind
            yield Finding(message=message, severity="error", value=setting.value, expected=expected)


def twice(context: Context) -> Iterator[Finding]:
    """Flags that one command line gives twice with different values: the last one counts."""
    from meshwright.documents.launch import LaunchDocument, flags

    for document in context.reading.source.documents:
        if not is_script(document.path) or not isinstance(document, LaunchDocument):
            continue
        first: dict[str, tuple[tuple[str, ...], int]] = {}
        for key, words, line in flags(document.shell.launch.arguments):
            values = tuple(word.text for word in words)
            if key in first and first[key][0] != values:
                yield finding(
                    "warning", "check.twice", "{key} is given again (before in line {line} as {before}); this one counts",
                    path=f"{document.path}:{line}", value=" ".join(values), key=key, line=first[key][1],
                    before=" ".join(first[key][0]) or "a switch",
                )
            first[key] = (values, line)

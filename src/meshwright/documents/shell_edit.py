"""Changes of flags in a launch script, where their values are written, with every other byte kept.

A change is a list of candidates in the order of preference: the literal that a value comes from, then the places that it came
through, from the assignment to the command line. Each candidate is read again, and the first after which the launch has exactly
the intended words, in the same environment, is taken. So a variable that feeds something else too is left alone, and the value is
written where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from meshwright.documents.shell import ShellDocument, parse_shell
from meshwright.documents.shell_launch import Word
from meshwright.documents.shell_values import Text, inner
from meshwright.errors import InputError, fault

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][A-Za-z0-9_.@/-]*)=(.*)", re.DOTALL)
_SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_GAP = re.compile(r"(?:[ \t]|\\?\n)*")
MAX_ANCHORS = 12


class FlagEdit(Struct, frozen=True, kw_only=True):
    """One flag (``--flag``) or override (``section.key``) set to ``values`` (none: a switch), or taken out (``values`` None).

    A flag that is not there is appended behind ``after``, or behind the last flag.
    """

    key: str
    values: tuple[str, ...] | None
    after: str | None = None


class _Group(Struct, frozen=True):
    """A flag among the words of the command: its name, the index of its word, the indices of its values."""

    key: str
    start: int
    values: tuple[int, ...]
    joined: bool  # --flag=value and key=value are one word

    @property
    def end(self) -> int:
        return self.values[-1] if self.values else self.start


_Words = list[tuple[str, ...]]
"""What each word of the command shall read, or may read; an unknown one is the empty tuple."""
_Range = tuple[int, int]


def replace_flags(document: ShellDocument, edits: Sequence[FlagEdit]) -> str:
    """The text of the script after all ``edits``.

    Errors: ``InputError`` naming flag and line where a value is composed so that it cannot be changed in place.
    """
    crlf = "\r\n" in document.text
    current = _read(document.text.replace("\r\n", "\n"), document) if crlf else document
    for edit in edits:
        current = _applied(current, edit, edits)
    return current.text.replace("\n", "\r\n") if crlf else current.text


def replace(document: ShellDocument, edits: Sequence[FlagEdit]) -> str:
    """The same as ``replace_flags``."""
    return replace_flags(document, edits)


def _read(text: str, like: ShellDocument) -> ShellDocument:
    arguments, environment, files = like.given
    return parse_shell(text, path=like.path, arguments=arguments, environment=dict(environment), files=files)


def _words(document: ShellDocument) -> tuple[Word, ...]:
    return document.launch.command.words


def _groups(document: ShellDocument) -> list[_Group]:
    """Flags and overrides of the program, in order."""
    words = _words(document)
    groups: list[_Group] = []
    first = len(words) - len(document.launch.arguments)
    for index in range(first, len(words)):
        text = words[index].text if words[index].known else words[index].part.plain
        head, equals, _ = text.partition("=")
        override = None if text.startswith("-") else _OVERRIDE.fullmatch(text)
        if _FLAG.fullmatch(head):
            groups.append(_Group(head, index, (), bool(equals)))
        elif override and not (groups and not groups[-1].joined and not groups[-1].values):
            groups.append(_Group(override[1], index, (), True))
        elif groups:
            last = groups[-1]
            groups[-1] = _Group(last.key, last.start, (*last.values, index), last.joined)
    return groups


def _applied(document: ShellDocument, edit: FlagEdit, edits: Sequence[FlagEdit]) -> ShellDocument:
    """The document after one edit."""
    present = [group for group in _groups(document) if group.key == edit.key]
    if edit.values is None:
        for _ in present:
            group = next(group for group in _groups(document) if group.key == edit.key)
            document = _without(document, edit.key, range(group.start, group.end + 1), edits)
        return document
    if not present:
        return _appended(document, edit, edits)
    group = present[-1]
    if group.joined:
        if len(edit.values) != 1:
            line = _words(document)[group.start].line
            raise fault("shell.joined", "{flag} (line {line}) takes one value", path=document.path, flag=edit.key, line=line)
        return _with_word(document, edit.key, group.start, edit.values[0], edits, joined=True)
    common = min(len(group.values), len(edit.values))
    for index, value in zip(group.values[:common], edit.values[:common], strict=True):
        document = _with_word(document, edit.key, index, value, edits)
    if len(edit.values) > common:
        anchor = group.values[common - 1] if common else group.start
        changed = _inserted(document, anchor, group.start, edit.values[common:], edits, inline=True)
        if changed is None:
            raise _composed(document, edit.key, anchor)
        return changed
    if len(group.values) > common:
        return _without(document, edit.key, group.values[common:], edits)
    return document


def _composed(document: ShellDocument, flag: str, index: int) -> InputError:
    word = _words(document)[index]
    return fault(
        "shell.composed", "{flag} (line {line}) is put together from parts, or by code that other words share: change it by hand",
        path=document.path, flag=flag, line=word.line,
    )


def _intended(document: ShellDocument, edits: Sequence[FlagEdit]) -> _Words:
    """The words as they are, or as other edits want them: a variable that feeds two flags which both change may change."""
    words: _Words = [(word.text,) if word.known else () for word in _words(document)]
    targets = {edit.key: edit.values for edit in edits if edit.values is not None}
    for group in _groups(document):
        values = targets.get(group.key)
        if values is None or (group.joined and len(values) != 1):
            continue
        if group.joined and words[group.start]:
            head = words[group.start][0].partition("=")[0]
            words[group.start] = (*words[group.start], f"{head}={values[0]}")
        for index, value in zip(group.values, values, strict=False):
            words[index] = (*words[index], value) if words[index] else ("", value)
    return words


def _accepted(document: ShellDocument, text: str, intended: _Words) -> ShellDocument | None:
    """``text`` (in the reader's terms) as a document, where its launch reads as intended."""
    try:
        after = _read(text.encode("latin-1").decode("utf-8"), document)
        words = _words(after)
    except (InputError, UnicodeError):
        return None
    if len(words) != len(intended) or len(after.commands) != len(document.commands):
        return None
    for word, texts in zip(words, intended, strict=True):
        if (word.text not in texts) if word.known else bool(texts) and texts[0] != "":
            return None
    before = document.launch.command.environment
    return after if _plain(before) == _plain(after.launch.command.environment) else None


def _plain(environment: object) -> object:
    return {name: word and (word.text, word.known) for name, word in environment.items()} if hasattr(environment, "items") else None


def _first(document: ShellDocument, texts: Iterator[str], intended: _Words) -> ShellDocument | None:
    tried: set[str] = set()
    for text in texts:
        if text not in tried and (after := _accepted(document, text, intended)):
            return after
        tried.add(text)
    return None


def _spellings(value: str) -> tuple[str, ...]:
    """A word as bash may take it: bare, in single quotes, in double quotes, escaped for a string that is evaluated again."""
    plain = inner(value)
    single = "'" + plain.replace("'", "'\\''") + "'"
    double = '"' + re.sub(r'([$`"\\])', r"\\\1", plain) + '"'
    escaped = re.sub(r"([^\w@%+=:,./-])", r"\\\1", plain) or "''"
    if _SAFE.fullmatch(plain):
        return (plain,)
    return (single, double, plain, escaped, '\\"' + plain + '\\"') if plain else (single, double, "", '\\"\\"')


def _places(text: Text, *, inside_first: bool) -> list[_Range]:
    """The literal of a text and the places that all of it came through."""
    literal = text.span()
    frames = list(dict.fromkeys(text.frames()))[:MAX_ANCHORS]
    if inside_first:
        return list(dict.fromkeys([*([literal] if literal else []), *reversed(frames)]))
    return list(dict.fromkeys([*frames, *([literal] if literal else [])]))


def _with_word(
    document: ShellDocument, flag: str, index: int, value: str, edits: Sequence[FlagEdit], *, joined: bool = False
) -> ShellDocument:
    """The word at ``index`` (``joined``: what stands behind its ``=``) changed to ``value``."""
    word = _words(document)[index]
    intended = _intended(document, edits)
    part = word.part
    wanted = value
    if joined:
        head = part.plain.partition("=")[0]
        part = part.cut(len(head) + 1, len(part.plain))
        wanted = f"{head}={value}"
    if word.known and word.text == wanted:
        return document
    intended[index] = (wanted,)
    source = inner(document.text)

    def candidates() -> Iterator[str]:
        for start, end in _places(part, inside_first=True):
            for spelling in _spellings(value):
                yield source[:start] + spelling + source[end:]
        if joined:
            for start, end in _places(word.part, inside_first=True):
                for spelling in _spellings(wanted):
                    yield source[:start] + spelling + source[end:]
        if joined and not part.plain:
            span = word.part.span()
            if span:
                yield source[: span[1]] + inner(value) + source[span[1] :]

    after = _first(document, candidates(), intended)
    if after is None:
        raise _composed(document, flag, index)
    return after


def _own_places(document: ShellDocument, index: int, group: Sequence[int]) -> list[_Range]:
    """Places of a word that no word outside ``group`` came through, the outermost first."""
    words = _words(document)
    others = {frame for i, word in enumerate(words) if i not in group for frame in word.part.frames()}
    return [place for place in _places(words[index].part, inside_first=False) if place not in others]


def _without(document: ShellDocument, flag: str, group: Sequence[int], edits: Sequence[FlagEdit]) -> ShellDocument:
    """The words at ``group`` taken out, and the line with them where nothing else stands on it."""
    intended = [texts for i, texts in enumerate(_intended(document, edits)) if i not in group]
    source = inner(document.text)

    def candidates() -> Iterator[str]:
        for start, end in _stretches(document, source, group):
            for cut_start, cut_end in _cuts(source, start, end):
                yield source[:cut_start] + source[cut_end:]
        separate = [places[0] for index in group if (places := _own_places(document, index, group))]
        if len(separate) == len(group):
            yield from _separately(source, separate)

    after = _first(document, candidates(), intended)
    if after is None:
        raise _composed(document, flag, group[0])
    return after


def _separately(source: str, places: list[_Range]) -> Iterator[str]:
    """Each place cut on its own, the last of the file first."""
    text = source
    for start, end in sorted(set(places), reverse=True):
        cut = next(_cuts(text, start, end))
        text = text[: cut[0]] + text[cut[1] :]
    yield text
    text = source
    for start, end in sorted(set(places), reverse=True):
        text = text[:start] + text[end:]
    yield text


def _stretches(document: ShellDocument, source: str, group: Sequence[int]) -> Iterator[_Range]:
    """Ranges of the file that hold all words of ``group`` with only blanks between them."""
    for start, end in _own_places(document, group[0], group):
        last = end
        for index in group[1:]:
            places = _own_places(document, index, group)
            if any(place == (start, end) for place in places):
                continue
            follower = next((place for place in places if place[0] >= last and _GAP.fullmatch(source, last, place[0])), None)
            if follower is None:
                break
            last = follower[1]
        else:
            yield start, last


def _cuts(source: str, start: int, end: int) -> Iterator[_Range]:
    """What to delete so that ``start`` to ``end`` is gone and nothing odd is left around it."""
    line_start = source.rfind("\n", 0, start) + 1
    line_end = source.find("\n", end)
    line_end = len(source) if line_end < 0 else line_end
    before, behind = source[line_start:start], source[end:line_end]
    if not before.strip(" \t") and re.fullmatch(r"[ \t]*(?:\\|#.*)?", behind):
        continued = re.search(r"[ \t]*\\\n\Z", source[:line_start])
        if continued and not behind.rstrip(" \t").endswith("\\"):
            yield continued.start(), end
        yield line_start, min(line_end + 1, len(source))
    closing = re.search(r"[ \t]*\\?\n\Z", source[:line_start])
    if closing and not before.strip(" \t") and re.match(r"[\"')]", behind):
        yield closing.start(), end
    blank = re.search(r"[ \t]*\Z", before)
    yield start - (len(blank[0]) if blank and before.strip(" \t") else 0), end
    following = re.match(r"[ \t]*", behind)
    yield start, end + (len(following[0]) if following else 0)
    yield start, end


def _appended(document: ShellDocument, edit: FlagEdit, edits: Sequence[FlagEdit]) -> ShellDocument:
    """A flag that is not there yet, in the style of the flags around it."""
    values = edit.values or ()
    if edit.key.startswith("-"):
        new: tuple[str, ...] = (edit.key, *values)
    elif len(values) == 1:
        new = (f"{edit.key}={values[0]}",)
    else:
        raise fault("shell.joined", "{flag} takes one value", path=document.path, flag=edit.key)
    groups = _groups(document)
    wanted = [group for group in groups if group.key == edit.after][-1:]
    anchors = [(group.end, group.start) for group in [*wanted, *reversed(groups[-MAX_ANCHORS:])]]
    first = len(_words(document)) - len(document.launch.arguments)
    if not groups and document.launch.program is not None:
        anchors.append((len(_words(document)) - 1, len(_words(document)) - 1))
        anchors.append((first - 1, first - 1))
    for anchor, style in anchors:
        after = _inserted(document, anchor, style, new, edits, inline=False)
        if after is not None:
            return after
    raise fault(
        "shell.composed", "{flag} cannot be added to the launch in line {line}: no place among its flags is only its own",
        path=document.path, flag=edit.key, line=document.launch.command.line,
    )


def _inserted(
    document: ShellDocument, anchor: int, style: int, new: Sequence[str], edits: Sequence[FlagEdit], *, inline: bool
) -> ShellDocument | None:
    """Words behind the word at ``anchor``, set apart as the word at ``style`` is."""
    intended = _intended(document, edits)
    intended[anchor + 1 : anchor + 1] = [(word,) for word in new]
    source = inner(document.text)
    spelled = list(dict.fromkeys(" ".join(choice) for choice in zip(*(_padded(word) for word in new), strict=True)))

    def candidates() -> Iterator[str]:
        heads = _own_places(document, style, (style,))
        for start, end in _own_places(document, anchor, (anchor,)):
            near = [head for head in heads if head[0] <= start] or heads
            flag_start = near[0][0] if near else start
            for text in spelled:
                for at, separator in _separators(source, flag_start, end, inline=inline):
                    yield source[:at] + separator + text + source[at:]

    return _first(document, candidates(), intended)


def _padded(word: str) -> tuple[str, ...]:
    spellings = _spellings(word)
    return (*spellings, *([spellings[-1]] * (5 - len(spellings))))


def _separators(source: str, flag_start: int, end: int, *, inline: bool) -> Iterator[tuple[int, str]]:
    """Where to write behind ``end``, and what to write first: a new line where flags stand one per line."""
    line_start = source.rfind("\n", 0, flag_start) + 1
    indent = source[line_start:flag_start]
    line_end = source.find("\n", end)
    line_end = len(source) if line_end < 0 else line_end
    if not inline and not indent.strip(" \t"):
        continued = source[:line_start].endswith("\\\n") or source[end:line_end].rstrip(" \t").endswith("\\")
        styles = (f" \\\n{indent}", f"\n{indent}") if continued else (f"\n{indent}", f" \\\n{indent}")
        if not continued and re.match(r"[ \t]+#", source[end:line_end]):
            yield line_end, f"\n{indent}"
        for style in styles:
            yield end, style
    yield end, " "

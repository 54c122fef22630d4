"""Launch scripts in bash, read without ever being run, and changed in place.

``parse_shell`` follows a script as bash would: assignments, arrays, defaults, continuations, branches, loops, functions, ``eval``
and ``bash -c``. What only running it could tell stays unknown, with a remark that names the variable and the line. Rules:

- The real environment is never read. A variable that the script never sets is unset for ``${X:-default}``, ``-z`` and ``-n``, and
  unknown everywhere else.
- Where a condition cannot be decided every branch is followed; variables that differ afterwards are unknown; launches in all
  branches count, the ``else`` branch's last. A branch that exits is left out.
- Programs are taken to succeed; what they print is not known. ``source`` reads those files that are given beside the script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.documents.shell_launch import Command, Launch, Word, find_launch, other_script
from meshwright.documents.shell_record import Ran
from meshwright.documents.shell_run import execute, new_run
from meshwright.documents.shell_values import Bounds, Piece, Source, State, Text, Value, inner, joined, literal, shown
from meshwright.errors import Message, fault

MAX_BYTES = 1_000_000
"""Larger than any launch script."""

__all__ = ["Command", "Launch", "ShellDocument", "Word", "parse_shell", "spelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellDocument:
    """A launch script as it was understood. ``environment`` is what the launch sees; None where a name was unset on purpose."""

    path: str
    text: str
    commands: tuple[Command, ...]
    environment: Mapping[str, Word | None]
    variables: Mapping[str, Word]
    embedded: Mapping[str, tuple[str, int]]
    batch_headers: Mapping[str, Word]
    remarks: tuple[Message, ...]
    found: Launch | None
    given: tuple[tuple[str, ...], tuple[tuple[str, str], ...], Mapping[str, str]] = field(default=((), (), {}), repr=False)
    read: tuple[str, ...] = ()
    """Files given beside the script that it reads by ``source``."""

    @property
    def beside(self) -> Mapping[str, str]:
        """Path -> text of all files given beside the script."""
        return self.given[2]

    @property
    def launch(self) -> Launch:
        """The training launch.

        Errors: ``InputError`` where the script launches nothing.
        """
        if self.found is None:
            raise fault(
                "shell.no_launch",
                "launches no training: no torchrun, deepspeed, accelerate, msrun or python with arguments{hint}",
                path=self.path, hint=self._hint(),
            )
        return self.found

    def _hint(self) -> str:
        """What to give instead, as far as the script says it."""
        for command in reversed(self.commands):
            other = other_script(command)
            if other:
                how = '--arguments "NAME=VALUE ... words"'
                return f"; line {command.line} starts {other}: give that file, with {how} as it is called"
        read = [str(each.values["name"]) for each in self.remarks if each.id == "shell.source"]
        if read:
            return f"; it reads {', '.join(dict.fromkeys(read[:3]))}: give the file that launches"
        if self.variables and not self.commands:
            return "; it only sets variables: give the script that reads it"
        return ""


def parse_shell(
    text: str, *, path: str = "", arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> ShellDocument:
    """Read a bash script. ``arguments`` are its positional parameters, ``environment`` the variables it starts with, ``files`` the
    texts that it may read in.

    Errors: ``InputError`` for binary content, for more than ``MAX_BYTES``, for scripts that grow or nest without bound, and for
    syntax so broken that nothing is found.
    """
    if "\0" in text:
        raise fault("shell.binary", "not a shell script: it holds NUL bytes", path=path)
    try:
        data = inner(text.replace("\r\n", "\n")) if "\r\n" in text else inner(text)
    except UnicodeEncodeError as error:
        raise fault("shell.encoding", "no UTF-8 text (character {offset})", path=path, offset=error.start) from None
    if len(data) > MAX_BYTES:
        raise fault("shell.large", "larger than {limit} bytes, which no launch script is", path=path, limit=MAX_BYTES)
    state = State(Bounds(path))
    for name, value in (environment or {}).items():
        state.assign(name, literal(inner(value)))
        state.exported.add(name)
    state.positional = [literal(inner(argument)) for argument in arguments]
    state.arguments_given = bool(arguments)
    run = new_run(files or {})
    source = Source(Text((Piece(data, 0, 1),)), nested=False)
    try:
        execute(source, state, run)
    except RecursionError:
        raise state.bounds.refusal("nested constructs") from None
    if run.broken:
        state.remark("shell.syntax", "parts of the script are not valid bash")
    headers = _headers(source)
    if run.broken and not (run.commands or state.variables or headers or run.embedded):
        raise fault("shell.broken", "not a shell script that can be read: no assignment and no command is found", path=path)
    commands = _commands(run.commands, state)
    found = find_launch(commands, headers)
    if found:
        _remark_template(found, state)
    last = found.command if found else None
    environment_seen: Mapping[str, Word | None] = (
        last.environment
        if last
        else {name: _word(_as_text(state.variables[name])) for name in sorted(state.exported) if name in state.variables}
    )
    return ShellDocument(
        path=path, text=text, commands=commands, environment=environment_seen,
        variables={name: _word(_as_text(value)) for name, value in state.variables.items()},
        embedded=run.embedded, batch_headers=headers, remarks=tuple(state.remarks.values()), found=found,
        given=(tuple(arguments), tuple(sorted((environment or {}).items())), files or {}), read=tuple(run.read),
    )


def spelled(name: str) -> str:
    """An unknown name as the script spells it: ``$11``, ``$HOME``; ``$(date)`` and expressions stay as they are."""
    text = shown(name)
    return f"${text}" if re.fullmatch(r"\w+|[@*#]", text) else text


def _as_text(value: Value) -> Text:
    """A variable as one text; the elements of an array with blanks between."""
    return value if isinstance(value, Text) else joined(value if isinstance(value, list) else value.values())


def _word(text: Text, *, shared: bool = False, line: int = 0) -> Word:
    known = text.known
    return Word(
        text=shown(text.plain) if known else "", known=known, line=text.line or line,
        span=text.span() if known else None, shared=shared, part=text,
    )


def _commands(ran: Sequence[Ran], state: State) -> tuple[Command, ...]:
    """Commands with their words; a literal that reaches two words of one command, or of its environment, is shared."""
    result = []
    for each in ran:
        texts = [*each.outer, *each.words, *(text for text in each.environment.values() if text is not None)]
        uses: dict[int, int] = {}
        for text in texts:
            for at in {piece.at for piece in text.pieces if piece.at >= 0 and piece.text}:
                uses[at] = uses.get(at, 0) + 1
        words = [*each.outer, *each.words]
        for text in words:
            for piece in text.pieces:
                if piece.unknown:
                    state.remark(
                        "shell.unknown",
                        "{name} (line {line}) is not known without running the script",
                        name=spelled(piece.unknown),
                        line=piece.line or each.line,
                    )

        def word(text: Text, uses: dict[int, int] = uses, line: int = each.line) -> Word:
            return _word(text, shared=any(uses[piece.at] > 1 for piece in text.pieces if piece.at >= 0 and piece.text), line=line)

        result.append(
            Command(
                words=tuple(word(text) for text in each.words),
                line=each.line,
                outer=tuple(word(text) for text in each.outer),
                environment={name: None if text is None else word(text) for name, text in each.environment.items()},
            )
        )
    return tuple(result)


def _remark_template(launch: Launch, state: State) -> None:
    """Words that only a template has."""
    for word in launch.command.words:
        if word.text in ("...", "\N{HORIZONTAL ELLIPSIS}"):
            state.remark("shell.ellipsis", "line {line} holds '...': what stands for it is not known", line=word.line)


def _headers(source: Source) -> dict[str, Word]:
    """``#SBATCH`` options, by their names without dashes; short ones as they are."""
    headers: dict[str, Word] = {}
    long = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "p": "partition", "J": "job-name", "t": "time", "G": "gpus"}
    for match in re.finditer(r"^#SBATCH[ \t]+([^\n]*)", source.plain, re.MULTILINE):
        if len(headers) > 200:
            break
        for option in re.finditer(r"(?:--([A-Za-z][\w-]*)|-([A-Za-z]))[= \t]*([^\s#-][^\s#]*)?", match[1]):
            name = option[1] or long.get(option[2], option[2])
            start = match.start(1) + (option.start(3) if option[3] else option.end())
            headers[name] = _word(source.literal(start, start + len(option[3] or "")))
        if len(match[1]) > 1000:
            break
    return headers

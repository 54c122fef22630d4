"""Simple commands of a script: assignments, declarations, builtins, functions, programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.shell_conditions import Verdict, test_command
from meshwright.documents.shell_expand import arithmetic, fields, scalar
from meshwright.documents.shell_record import MAX_ITEMS, Ran, Run
from meshwright.documents.shell_values import UNKNOWN_MARK, Source, State, Text, Value, inner, joined, literal, shown, unknown
from meshwright.documents.shell_words import ASSIGNMENT, Token, command_tokens, list_words

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_COMMANDS = 2000
MAX_CALLS = 20
"""Functions, shells and files within each other."""
MAX_SHIFT = 6
"""Digits of an argument of ``shift`` that are read: so many arguments no script has."""
_NO_LAUNCH = frozenset({
    "echo", "printf", "mkdir", "cd", "pushd", "popd", "ls", "cat", "cp", "mv", "rm", "ln", "touch", "chmod", "sleep", "wait", "set",
    "shopt", "ulimit", "trap", "module", "conda", "pip", "pip3", "which", "date", "hostname", "grep", "sed", "awk", "tee", "kill",
    "pkill", "sync", "true", "false", ":", "return", "exit", "break", "continue", "git", "wget", "curl", "tar", "unzip",
    "find", "head", "tail", "sort", "nvidia-smi", "npu-smi", "df", "du", "free", "ps", "pwd", "id", "whoami", "apt", "apt-get",
    "yum", "rsync",
    "scp", "getopts", "type", "hash", "alias", "unalias", "umask", "tr", "wc", "ray",
})
_SUBMITTED = ["ray", "job", "submit"]
"""Of what Ray is told to do, what launches."""
_DECLARATIONS = ("export", "declare", "typeset", "local", "readonly")
_PLAIN_WRAPPERS = ("exec", "command", "builtin", "nohup", "time", "setsid")


def _array(source: Source, state: State, start: int, end: int) -> list[Text] | dict[str, Text]:
    """The elements between brackets; ``[key]=value`` makes a dictionary."""
    words = list_words(source.plain, start, end)
    keyed = [re.compile(r"\[([^\]]*)\]=").match(source.plain, a, b) for a, b in words]
    if words and all(keyed):
        return {
            scalar(source, state, *match.span(1)).plain: scalar(source, state, match.end(), b)
            for match, (_, b) in zip(keyed, words, strict=True) if match
        }
    return [text for a, b in words for text in fields(source, state, a, b)]


def assign(source: Source, state: State, match: re.Match[str], end: int) -> str:
    """Carry out ``name=value`` that ends at ``end``; returns the name."""
    name, subscript, operator = match.groups()
    at = match.end()
    old = state.variables.get(name)
    value: Value
    if source.plain.startswith("(", at):
        value = _array(source, state, at + 1, max(at + 1, end - 1))
        if operator == "+=":
            if isinstance(old, dict) and isinstance(value, dict):
                value = {**old, **value}
            elif isinstance(value, list):
                value = ([old] if isinstance(old, Text) else old if isinstance(old, list) else []) + value
        if len(value) > MAX_ITEMS:
            raise state.bounds.refusal("words")
        state.bounds.made(joined(value.values() if isinstance(value, dict) else value, ""))
    else:
        value = scalar(source, state, at, end)
        if not subscript:
            if isinstance(old, list):
                value = [(old[0] + value if operator == "+=" and old else value), *old[1:]]
            elif operator == "+=" and isinstance(old, Text):
                value = state.bounds.made(old + value)
        else:
            value = _with_element(source, state, old, match, operator, value)
    state.assign(name, value)
    return name


def _with_element(source: Source, state: State, old: Value | None, match: re.Match[str], operator: str, value: Text) -> Value:
    inside = (match.start(2) + 1, match.end(2) - 1)
    if isinstance(old, dict):
        key = scalar(source, state, *inside).plain
        return {**old, key: old[key] + value if operator == "+=" and key in old else value}
    array = [old] if isinstance(old, Text) else list(old or ())
    index = arithmetic(source, state, *inside)
    position = int(index.plain) if index.known else -1
    if 0 <= position < len(array):
        array[position] = array[position] + value if operator == "+=" else value
    elif position == len(array):
        array.append(value)
    else:
        return unknown(match[1], source.line(match.start()))
    return array


def follow_simple(source: Source, start: int, state: State, run: Run) -> Verdict:
    """A simple command: assignments before it, its words, its redirections."""
    s = source.plain
    tokens, _ = command_tokens(s, start, len(s))
    line = source.line(start)
    words: list[Text] = []
    assignments: list[tuple[re.Match[str], int]] = []
    declaring = False
    for token in tokens:
        if token.kind == "redirection":
            continue
        if token.kind == "placeholder":
            if assignments and not words and assignments[-1][1] == token.start:
                state.assign(assignments.pop()[0][1], unknown(s[token.start : token.end], source.line(token.start)))
                return True
            words.append(source.through(unknown(s[token.start : token.end], source.line(token.start)), token.start, token.end))
            continue
        match = ASSIGNMENT.match(s, token.start, token.end)
        if match and (not words or declaring):
            assignments.append((match, token.end))
            if declaring:
                words.append(source.literal(match.start(1), match.end(1)))
            continue
        words.extend(fields(source, state, token.start, token.end))
        declaring = declaring or (len(words) == 1 and words[0].plain in _DECLARATIONS)
        if len(words) > MAX_ITEMS:
            raise state.bounds.refusal("words")
    if declaring:
        return _declare(source, state, run, words, assignments)
    if not words:
        for match, end in assignments:
            assign(source, state, match, end)
        return True
    prefix: dict[str, Text] = {}
    if assignments:
        inside = state.copy()
        for match, end in assignments:
            name = assign(source, inside, match, end)
            value = inside.variables[name]
            if isinstance(value, Text):
                prefix[name] = value
    if words and words[0].plain.startswith("-") and words[0].known and s[:start].rstrip(" \t").endswith("\n"):
        state.remark(
            "shell.cut", "line {line} begins a new command with {word!r}: the command before it ended (a comment, or no backslash "
            "at the line's end), so these words do not reach it", line=line, word=shown(words[0].plain),
        )
        return True
    if words[0].plain == "read" and (given := _here_string(source, state, tokens)) is not None:
        return _read(state, words, given, prefix.get("IFS"))
    return _program(source, state, run, words, prefix, line)


def _here_string(source: Source, state: State, tokens: Sequence[Token]) -> Text | None:
    """What ``<<< text`` gives a command to read."""
    found = [token for token in tokens if token.kind == "redirection" and token.operator == "<<<"]
    return scalar(source, state, found[-1].target, found[-1].end) if found else None


def _read(state: State, words: list[Text], given: Text, separators: Text | None) -> Verdict:
    """``read a b <<< text``: words of the text by ``IFS``; the last name gets the rest."""
    names = [word.plain for word in words[1:] if not word.plain.startswith("-")]
    array = any(word.plain.startswith("-") and "a" in word.plain for word in words[1:])
    marks = " \t\n" if separators is None else separators.plain
    known = given.known and (separators is None or separators.known) and bool(marks)
    pattern = f"[{re.escape(marks)}]" + ("" if marks.strip() else "+")
    parts = re.split(pattern, given.plain.strip(" \t\n")) if known else []
    for index, name in enumerate(names):
        if not ASSIGNMENT.match(name + "="):
            continue
        if not known:
            state.assign(name, unknown(name, given.line))
        elif array:
            state.assign(name, [literal(part, given.line) for part in parts])
        else:
            last = index == len(names) - 1
            rest = marks[0].join(parts[index:]) if last else parts[index] if index < len(parts) else ""
            state.assign(name, literal(rest, given.line))
    return True


def _declare(source: Source, state: State, run: Run, words: list[Text], assignments: list[tuple[re.Match[str], int]]) -> Verdict:
    """``export``, ``declare``, ``local``, ``readonly``."""
    kind, *names = words
    options = "".join(word.plain[1:] for word in names if word.plain.startswith("-"))
    exports = kind.plain == "export" or "x" in options
    local = kind.plain == "local" or (kind.plain in ("declare", "typeset") and bool(run.locals) and "g" not in options)
    plain = [word.plain for word in names if not word.plain.startswith("-")]
    if local and run.locals:
        for name in plain:
            run.locals[-1].setdefault(name, state.variables.get(name))
    for match, end in assignments:
        if "A" in options and match[1] not in state.variables:
            state.assign(match[1], {})
        assign(source, state, match, end)
        value = state.variables[match[1]]
        if "A" in options and isinstance(value, list) and not value:
            state.assign(match[1], {})
        if "i" in options and isinstance(value, Text):
            state.assign(match[1], unknown(match[1], source.line(match.start())) if not value.plain.isdigit() else value)
    assigned = {match[1] for match, _ in assignments}
    for name in plain:
        if exports and "n" in options:
            state.exported.discard(name)
        elif exports:
            state.exported.add(name)
        if name not in assigned and not exports:
            if local:
                state.remove(name)
            if name not in state.variables and ("A" in options or "a" in options):
                state.assign(name, {} if "A" in options else [])
    return True


def _program(source: Source, state: State, run: Run, words: list[Text], prefix: dict[str, Text], line: int) -> Verdict:
    """Builtins that change the shell, functions, nested shells, and programs."""
    while len(words) > 1 and words[0].plain in _PLAIN_WRAPPERS and not words[1].plain.startswith("-"):
        words = words[1:]
    name = words[0].plain
    plain = [word.plain for word in words]
    if name in run.functions:
        return _call(state, run, words)
    if name in ("[", "test"):
        return test_command(state, words[1 : -1 if name == "[" else None])
    if name == "eval":
        program = joined(words[1:])
        run.follow.text(Source(state.bounds.made(program), nested=True), state, run)
        return True
    if name in ("exit", "return", "break", "continue"):
        run.flow = name
        return True
    if name == "unset":
        for word in plain[1:]:
            if not word.startswith("-"):
                state.remove(word)
        return True
    if name == "shift":
        count = int(plain[1][:MAX_SHIFT]) if len(plain) > 1 and plain[1].isdigit() else 1
        if count <= len(state.positional):  # bash refuses to shift further than there are arguments
            state.positional = state.positional[count:]
        return True
    if name == "set":
        if "--" in plain:
            state.positional = words[plain.index("--") + 1 :]
            state.arguments_given = True
        return True
    if name in ("let", "expr"):
        for expression in words[1:] if name == "let" else []:
            arithmetic(Source(expression, nested=True), state, 0, len(expression.plain))
        return True
    if name in ("read", "mapfile", "readarray", "getopts", "printf"):
        names = [word for word in plain[1:] if not word.startswith("-")]
        if name == "printf":
            names = [plain[2]] if plain[1:2] == ["-v"] and len(plain) > 2 else []
        for each in names if name != "getopts" else names[1:]:
            if ASSIGNMENT.match(each + "="):
                state.assign(each, unknown(each, line))
        return None
    if name in ("source", "."):
        return _read_in(state, run, words[1:2], line)
    if name in ("false",):
        return False
    if name in ("alias", "trap"):
        return True
    return _start(state, run, words, prefix, line)


def _read_in(state: State, run: Run, words: Sequence[Text], line: int) -> Verdict:
    """``source FILE``: its text as if it stood there, where a file of that name was given, whatever folder the run finds it in."""
    path = shown(words[0].plain) if words else ""
    tail = path.rpartition(UNKNOWN_MARK)[2].rpartition("/")[2]
    given = next((each for each in run.files if tail and each.rpartition("/")[2] == tail), None)
    if given is None:
        named = path if words and words[0].known else tail or "another file"
        state.remark("shell.source", "line {line} reads {name}, which is not followed", line=line, name=named)
        return True
    run.read.append(given)
    run.calls += 1
    if run.calls > MAX_CALLS:
        raise state.bounds.refusal("nested files")
    run.follow.text(Source(state.bounds.made(literal(inner(run.files[given]), line)), nested=True), state, run)
    run.calls -= 1
    if run.flow == "return":
        run.flow = ""
    return True


def _call(state: State, run: Run, words: list[Text]) -> Verdict:
    """A function of the script: its own arguments, and the variables it declares local go back afterwards."""
    if run.calls >= MAX_CALLS:
        raise state.bounds.refusal("nested calls")
    source, body = run.functions[words[0].plain]
    positional, given, depth = state.positional, state.arguments_given, run.depth
    state.positional, state.arguments_given = words[1:], True
    run.calls += 1
    run.locals.append({})
    verdict = run.follow.statement(source, body, state, run)
    for name, value in run.locals.pop().items():
        if value is None:
            state.variables.pop(name, None)
            state.unset.discard(name)
        else:
            state.assign(name, value)
    run.calls -= 1
    run.depth = depth
    state.positional, state.arguments_given = positional, given
    if run.flow == "return":
        run.flow = ""
    return verdict


def _start(state: State, run: Run, words: list[Text], prefix: dict[str, Text], line: int) -> Verdict:
    """A program: its words and its environment are kept; a ``bash -c`` string inside is followed too."""
    run.understood += 1
    environment: dict[str, Text | None] = {}
    for name in sorted(state.exported | set(prefix)):
        value = prefix.get(name, state.variables.get(name))
        if isinstance(value, Text):
            environment[name] = value
    environment.update({name: None for name in state.unset if name not in environment})
    plain = [word.plain for word in words]
    if plain[0].rpartition("/")[2] in _NO_LAUNCH and plain[:3] != _SUBMITTED:
        return True
    shell = next((i for i, word in enumerate(plain) if word.rpartition("/")[2] in ("bash", "sh", "zsh")), None)
    while shell is not None and shell + 2 < len(plain) and plain[shell + 1] in ("-x", "-e", "-l", "-u", "--login"):
        shell += 1  # options before the one that takes the text
    if shell is not None and shell + 2 < len(plain) and plain[shell + 1].startswith("-") and plain[shell + 1].endswith("c"):
        text = words[shell + 2]
        inside = state.copy()
        inside.variables = {name: value for name, value in inside.variables.items() if name in inside.exported}
        inside.unset = set()
        inside.variables.update(prefix)
        inside.positional, inside.arguments_given = words[shell + 4 :], True
        outer, run.outer, flow = run.outer, run.outer + words[:shell], run.flow
        run.calls += 1
        if run.calls > MAX_CALLS:
            raise state.bounds.refusal("nested shells")
        run.follow.text(Source(text, nested=True), inside, run)
        run.calls -= 1
        run.outer, run.flow = outer, flow
        return None
    if len(run.commands) >= MAX_COMMANDS:
        del run.commands[: MAX_COMMANDS // 2]
        state.remark("shell.commands", "more than {limit} programs are started: the last ones are kept", limit=MAX_COMMANDS)
    run.commands.append(Ran(words, line, environment, list(run.outer)))
    return True

"""Walks through a script as bash would, without executing anything: assignments, branches, loops, functions.

Where a condition cannot be decided, all branches are followed, each with its own variables. Variables that come out alike are
kept, the others are unknown; launches of all branches count, in their order, so that the ``else`` branch comes last; a branch
that ends the script drops out. Programs are taken to succeed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import tree_sitter_bash
from tree_sitter import Language, Parser

from meshwright.documents.shell_branches import follow_case, follow_if, follow_loop
from meshwright.documents.shell_commands import follow_simple
from meshwright.documents.shell_conditions import Verdict, both, double_bracket, either, negated
from meshwright.documents.shell_expand import arithmetic, fields, scalar
from meshwright.documents.shell_record import Run, guards, left, truth
from meshwright.documents.shell_values import Source, State, merge, shown
from meshwright.documents.shell_words import command_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tree_sitter import Node, Tree

MAX_DEPTH = 40
MAX_REPAIRS = 100
"""Steps (of some hundred moves) that the parser may take behind a syntax error; real scripts need up to 3."""
MAX_OPEN = 500
"""Brackets that may be open at once or in one line: the parser's memory grows with their square."""
_PARSER = Parser(Language(tree_sitter_bash.language()))
_SIMPLE = frozenset({
    "command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments", "test_command",
})


class _Walk:
    """The walk, for those whom it calls and who call it back."""

    def statement(self, source: Source, node: Node, state: State, run: Run) -> Verdict:
        """Follow one statement."""
        return _statement(source, node, state, run)

    def block(self, source: Source, nodes: Sequence[Node], state: State, run: Run) -> Verdict:
        """Follow statements in order."""
        return _block(source, nodes, state, run)

    def text(self, source: Source, state: State, run: Run) -> None:
        """Follow a whole program text."""
        execute(source, state, run)


_TRAILING = re.compile(rb"(?<=[^\\])\\\n?\Z")
"""A backslash that ends the file continues nothing: bash drops it, and the grammar takes it for an error."""


def new_run(files: Mapping[str, str]) -> Run:
    """Nothing met yet; ``files`` are those that ``source`` may read."""
    return Run(follow=_Walk(), files=files)


def execute(source: Source, state: State, run: Run) -> None:
    """Follow a whole program text."""
    data = source.plain.encode("latin-1")
    state.bounds.parse(len(data))
    tree = _parsed(_TRAILING.sub(lambda found: b" " * len(found[0]), data), state)
    run.broken = run.broken or tree.root_node.has_error
    _block(source, tree.root_node.children, state, run)


def _parsed(data: bytes, state: State) -> Tree:
    """The syntax tree; behind a syntax error the parser tries many readings at once, which is bounded.

    Tens of kilobytes of brackets that are never closed would cost it gigabytes.
    """
    if _open_brackets(data) > MAX_OPEN:
        raise state.bounds.refusal("open brackets")
    tried = 0

    def enough(offset: int, has_error: bool) -> bool:
        nonlocal tried
        tried += has_error
        return tried > MAX_REPAIRS

    try:
        tree = _PARSER.parse(lambda offset, point: data[offset : offset + 65_536], progress_callback=enough)
    except ValueError:  # stopped
        tree = None
    if tree is None or tried > MAX_REPAIRS:
        _PARSER.reset()
        raise state.bounds.refusal("broken syntax")
    return tree


def _open_brackets(data: bytes) -> int:
    """Most brackets that are open at once, or opened in one line, whatever kind and quotes they have."""
    most = level = 0
    if sum(map(data.count, (b"(", b"[", b"{"))) > MAX_OPEN:
        for bracket in re.finditer(rb"[(){}\[\]]", data):
            level = level + 1 if bracket[0] in b"([{" else max(0, level - 1)
            most = max(most, level)
        most = max(most, *(sum(map(line.count, (b"(", b"[", b"{"))) for line in data.split(b"\n")))
    return most


def _block(source: Source, nodes: Sequence[Node], state: State, run: Run) -> Verdict:
    """Statements in order; those that an earlier command has swallowed (bash's words reach further) are skipped."""
    verdict: Verdict = True
    done = 0
    for node in nodes:
        if run.flow:
            break
        if node.is_named and node.type != "comment" and node.end_byte > done:
            verdict = _statement(source, node, state, run)
            done = node.end_byte
            if node.type in _SIMPLE and node.type != "test_command":
                done = max(command_tokens(source.plain, node.start_byte, len(source.plain))[1], node.start_byte + 1)
                _remainder(source, done, node.end_byte, state, run)
    return verdict


def _remainder(source: Source, start: int, end: int, state: State, run: Run) -> None:
    """What the grammar counts to a command although bash's words end before it: it is a statement of its own."""
    if run.flow or not source.plain[start:end].strip(" \t\n;&"):
        return
    run.depth += 1
    if run.depth > MAX_DEPTH:
        raise state.bounds.refusal("nested statements")
    skipped = re.compile(r"[ \t;&]*").match(source.plain, start, end)
    execute(Source(source.literal(skipped.end() if skipped else start, end), nested=True), state, run)
    run.depth -= 1


def _statement(source: Source, node: Node, state: State, run: Run) -> Verdict:
    state.bounds.step()
    run.depth += 1
    try:
        if run.depth > MAX_DEPTH:
            raise state.bounds.refusal("nested statements")
        return _dispatch(source, node, state, run)
    finally:
        run.depth -= 1


def _dispatch(source: Source, node: Node, state: State, run: Run) -> Verdict:
    kind = node.type
    if kind == "test_command":
        text = source.plain[node.start_byte : node.end_byte]
        if text.startswith("[["):
            return double_bracket(source, state, node.start_byte + 2, node.end_byte - 2)
        if text.startswith("(("):
            return truth(arithmetic(source, state, node.start_byte + 2, node.end_byte - 2))
    if kind in _SIMPLE:
        run.understood += kind != "command"
        return follow_simple(source, node.start_byte, state, run)
    if kind == "compound_statement" and source.plain.startswith("((", node.start_byte):
        return truth(arithmetic(source, state, node.start_byte + 2, node.end_byte - 2))
    if kind in ("program", "compound_statement", "do_group", "ERROR"):
        return _block(source, node.children, state, run)
    if kind == "list":
        return _list(source, node, state, run)
    if kind == "negated_command":
        return negated(_block(source, node.children, state, run))
    if kind == "redirected_statement":
        return _redirected(source, node, state, run)
    if kind in ("subshell", "pipeline"):
        return _separate(source, node, state, run)
    if kind == "if_statement":
        return follow_if(source, node, state, run)
    if kind == "case_statement":
        return follow_case(source, node, state, run)
    if kind in ("for_statement", "c_style_for_statement", "while_statement"):
        return follow_loop(source, node, state, run)
    if kind == "function_definition":
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name and body:
            run.functions[source.plain[name.start_byte : name.end_byte]] = (source, body)
            run.understood += 1
    return True


def _separate(source: Source, node: Node, state: State, run: Run) -> Verdict:
    """Subshells and the stages of a pipeline: what they assign does not come back."""
    if node.type == "subshell":
        verdict = _block(source, node.children, state.copy(), run)
        run.flow = ""
        return verdict
    for stage in [child for child in node.children if child.is_named]:
        _statement(source, stage, state.copy(), run)
        run.flow = ""
    return None


def _list(source: Source, node: Node, state: State, run: Run) -> Verdict:
    """``a && b || c``: left to right; what hangs on an undecided test is an undecided branch."""
    chain: list[tuple[str, Node]] = []
    operator = ""
    while node.type == "list" and len(node.children) >= 3:  # left-recursive: unrolled, however long
        chain.append((source.plain[node.children[1].start_byte : node.children[1].end_byte], node.children[2]))
        node = node.children[0]
    verdict = _statement(source, node, state, run)
    for operator, right in reversed(chain):
        if run.flow:
            return verdict
        decides = verdict if operator == "&&" else negated(verdict)
        if decides is None:
            branch = state.copy()
            result = _statement(source, right, branch, run)
            if not left(run):
                merge(state, [state.copy(), branch], source.line(right.start_byte))
            verdict = both(verdict, result) if operator == "&&" else either(verdict, result)
        elif decides:
            before, launched = state.copy(), len(run.commands)
            verdict = _statement(source, right, state, run)
            if guards(before, launched, state, run, source.line(right.start_byte)):
                verdict = True
    return verdict


def _redirected(source: Source, node: Node, state: State, run: Run) -> Verdict:
    """The command itself reads its redirections; here only the text of a here-document is kept."""
    for heredoc in [child for child in node.children if child.type == "heredoc_redirect"]:
        _heredoc(source, node, heredoc, state, run)
    body = node.child_by_field_name("body")
    verdict = _statement(source, body, state, run) if body else True
    for heredoc in [child for child in node.children if child.type == "heredoc_redirect"]:
        for child in heredoc.children:
            if child.type in ("command", "pipeline", "list") and child is not body:
                _statement(source, child, state.copy(), run)
    return verdict


def _heredoc(source: Source, node: Node, heredoc: Node, state: State, run: Run) -> None:
    body = next((child for child in heredoc.children if child.type == "heredoc_body"), None)
    start = next((child for child in heredoc.children if child.type == "heredoc_start"), None)
    if body is None or start is None:
        return
    first_line_end = source.plain.find("\n", start.end_byte)
    tokens, _ = command_tokens(source.plain, node.start_byte, first_line_end if first_line_end >= 0 else len(source.plain))
    targets = [token for token in tokens if token.kind == "redirection" and token.operator in (">", ">>", ">|")]
    name = "tee" if not targets else ""
    raw = source.plain[start.start_byte : start.end_byte]
    if any(quote in raw for quote in "'\"\\"):
        text = source.literal(body.start_byte, body.end_byte)
    else:
        text = scalar(source, state, body.start_byte, body.end_byte, quoted=True)
    words = fields(source, state, tokens[0].start, tokens[0].end) if tokens and tokens[0].kind == "word" else []
    if words and words[0].plain.rpartition("/")[2] in ("sbatch", "bash", "sh"):
        run.depth += 1
        if run.depth > MAX_DEPTH:
            raise state.bounds.refusal("nested here-documents")
        flow = run.flow
        run.follow.text(Source(text, nested=True), state.copy(), run)
        run.depth, run.flow = run.depth - 1, flow
        return
    if targets:
        words = fields(source, state, targets[-1].target, targets[-1].end)
        name = shown(words[0].plain) if len(words) == 1 and words[0].known else source.plain[targets[-1].target : targets[-1].end]
    else:
        tee = re.compile(r"\|\s*tee\s+([^\s|;&]+)").search(
            source.plain, start.end_byte, first_line_end if first_line_end >= 0 else len(source.plain)
        )
        if not tee:
            return
        name = shown(scalar(source, state, *tee.span(1)).plain)
    if not text.known:
        state.remark(
            "shell.embedded", "the text written to {name} (line {line}) holds what is not known: {names}",
            name=name, line=source.line(body.start_byte), names=", ".join(map(shown, text.unknowns)),
        )
    plain = "".join("${" + piece.unknown.strip("${}") + "}" if piece.unknown else piece.text for piece in text.pieces)
    if len(run.embedded) < 100:
        run.embedded[name] = (shown(plain), source.line(body.start_byte))

"""Branches and loops of a script: one where the condition is known, all of them merged where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.shell_conditions import Verdict, either, negated
from meshwright.documents.shell_expand import arithmetic, fields, pattern, scalar
from meshwright.documents.shell_parameters import glob_match
from meshwright.documents.shell_record import MAX_ITEMS, Run, guards, truth
from meshwright.documents.shell_values import Source, State, merge
from meshwright.documents.shell_words import after_bracket, list_words

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_ROUNDS = 1000


def follow_if(source: Source, node: Node, state: State, run: Run) -> Verdict:
    """One branch where the condition is known, all of them merged where it is not."""
    condition: list[Node] = []
    body: list[Node] = []
    clauses: list[tuple[list[Node] | None, list[Node]]] = []
    where = condition
    for child in node.children:
        if child.type == "then":
            where = body
        elif child.type == "elif_clause":
            split = next((i for i, each in enumerate(child.children) if each.type == "then"), len(child.children))
            clauses.append((list(child.children[:split]), list(child.children[split:])))
        elif child.type == "else_clause":
            clauses.append((None, list(child.children)))
        else:
            where.append(child)
    clauses.insert(0, (condition, body))
    return _choose(source, [(each, nodes) for each, nodes in clauses], state, run)


def _choose(source: Source, clauses: list[tuple[list[Node] | None, list[Node]]], state: State, run: Run) -> Verdict:
    if not clauses:
        return True
    possible: list[State] = []
    flows: list[str] = []
    line = 0
    for condition, body in clauses:
        verdict = True if condition is None else _condition(source, condition, state, run)
        if verdict is False:
            continue
        if verdict is None and not line and condition:
            line = source.line(condition[0].start_byte)
            state.remark("shell.condition", "the condition in line {line} cannot be decided without running the script", line=line)
        if verdict and not possible:
            before, launched = state.copy(), len(run.commands)
            run.follow.block(source, body, state, run)
            if guards(before, launched, state, run, source.line(body[0].start_byte) if body else 0):
                continue
            return True
        branch = state.copy()
        run.follow.block(source, body, branch, run)
        possible.append(branch)
        flows.append(run.flow)
        run.flow = ""
        if verdict:
            break
    else:
        if not possible:
            return True
        possible.append(state.copy())
        flows.append("")
    going = [branch for branch, flow in zip(possible, flows, strict=True) if flow != "exit"]
    if not going:
        run.flow = "exit"
        return None
    if all(flows):
        run.flow = flows[-1]
    merge(state, going, line)
    return None


def _condition(source: Source, nodes: list[Node], state: State, run: Run) -> Verdict:
    """The status of a condition; a program's is not known."""
    statements = [node for node in nodes if node.is_named and node.type != "comment"]
    if not statements:
        return None
    if len(statements) == 1 and statements[0].type in ("command", "pipeline", "redirected_statement"):
        first = source.plain[statements[0].start_byte : statements[0].end_byte].split(None, 1)
        name = first[0] if first else ""
        verdict = run.follow.statement(source, statements[0], state, run)
        return verdict if name in ("test", "[", "true", "false", ":", "!") or name in run.functions else None
    return run.follow.block(source, nodes, state, run)


def follow_case(source: Source, node: Node, state: State, run: Run) -> Verdict:
    """The items whose pattern fits or may fit."""
    subject_node = node.child_by_field_name("value")
    if subject_node is None:
        return None
    subject = scalar(source, state, subject_node.start_byte, subject_node.end_byte)
    possible: list[State] = []
    line = source.line(node.start_byte)
    for item in [child for child in node.children if child.type == "case_item"]:
        brackets = [i for i, child in enumerate(item.children) if child.type == ")"]
        split = brackets[0] if brackets else 0
        matched: Verdict = False
        for each in item.children[:split]:
            if each.is_named:
                glob, known = pattern(source, state, each.start_byte, each.end_byte)
                everything = glob == "*"
                fits = True if everything else glob_match(glob, subject.plain) if known and subject.known else None
                matched = either(matched, fits)
        if matched is False:
            continue
        branch = state if matched and not possible else state.copy()
        run.follow.block(source, item.children[split + 1 :], branch, run)
        if matched and not possible:
            return True
        ended, run.flow = run.flow, ""
        if ended != "exit":
            possible.append(branch)
        if matched:
            break
    else:
        if not possible:
            return True
        possible.append(state.copy())
    if possible:
        state.remark("shell.condition", "the condition in line {line} cannot be decided without running the script", line=line)
        merge(state, possible, line)
    return None


def follow_loop(source: Source, node: Node, state: State, run: Run) -> Verdict:
    """``for``, ``while`` and ``until``: as often as bash would, while that is known."""
    body = node.child_by_field_name("body")
    if body is None:
        return None
    if node.type == "for_statement":
        _for(source, node, body, state, run)
    else:
        _while(source, node, body, state, run)
    if run.flow in ("break", "continue"):
        run.flow = ""
    return True


def _round(source: Source, body: Node, state: State, run: Run) -> bool:
    """One pass through a loop's body; whether the loop goes on."""
    state.bounds.step()
    run.follow.block(source, body.children, state, run)
    if run.flow in ("break", "continue"):
        ended = run.flow == "break"
        run.flow = ""
        return not ended
    return not run.flow


def _for(source: Source, node: Node, body: Node, state: State, run: Run) -> None:
    variable = node.child_by_field_name("variable")
    if variable is None:
        return
    name = source.plain[variable.start_byte : variable.end_byte]
    has_list = any(child.type == "in" for child in node.children)
    items = list(state.positional)
    if has_list:
        after_in = next(child.end_byte for child in node.children if child.type == "in")
        stop = next((child.start_byte for child in node.children if child.type in (";", "do_group", "\n")), body.start_byte)
        items = [text for a, b in list_words(source.plain, after_in, stop) for text in fields(source, state, a, b)]
    if len(items) > MAX_ITEMS:
        raise state.bounds.refusal("words")
    for item in items:
        state.assign(name, item)
        if not _round(source, body, state, run):
            return


def _while(source: Source, node: Node, body: Node, state: State, run: Run) -> None:
    line = source.line(node.start_byte)
    step: tuple[int, int] | None = None
    if node.type == "c_style_for_statement":
        open_at = source.plain.find("((", node.start_byte)
        close = after_bracket(source.plain, open_at + 1, ")") - 1
        parts = source.plain[open_at + 2 : close].split(";")
        if len(parts) != 3:
            return
        first = open_at + 2 + len(parts[0])
        second = first + 1 + len(parts[1])
        arithmetic(source, state, open_at + 2, first)
        test, step = (first + 1, second), (second + 1, close)
    for _ in range(MAX_ROUNDS):
        verdict: Verdict
        if step:
            verdict = truth(arithmetic(source, state, *test))
        else:
            split = next((i for i, child in enumerate(node.children) if child.type == "do_group"), 1)
            condition = [child for child in node.children[1:split] if child.is_named]
            verdict = _condition(source, condition, state, run)
            if node.children[0].type == "until":
                verdict = negated(verdict)
        if verdict is False:
            return
        commands = len(run.commands)
        if verdict is None:
            state.remark("shell.condition", "the condition in line {line} cannot be decided without running the script", line=line)
            branch = state.copy()
            _round(source, body, branch, run)
            run.flow = ""
            merge(state, [state.copy(), branch], line)
            return
        if not _round(source, body, state, run):
            return
        if step:
            arithmetic(source, state, *step)
        elif len(run.commands) > commands and source.plain[condition[0].start_byte : condition[0].end_byte] in ("true", ":"):
            return
    state.remark("shell.loop", "the loop in line {line} was left after {rounds} rounds", line=line, rounds=MAX_ROUNDS)

"""Rules that are data alone: a call by its name, what it is given, where it stands.

``when`` of a row: ``call``, dotted names or ``.method`` of whatever object; ``in: step`` where only each step counts, ``in: run``
where not what is under a condition of debugging; ``first`` and ``keywords``, literal values that the first argument and named ones
must have; ``without``, arguments that must not be there; ``having``, some that must be; ``at_most``, positional arguments;
``imports``, packages of which the file imports one; ``set``, what ``--fix`` writes in place of the value.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.lint.found import Edit
from meshwright.lint.python.places import in_step, is_debugging
from meshwright.lint.rule import rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.lint.python.module import At, Module
    from meshwright.lint.rule import Rule

Hit = tuple[str, ast.AST, str, tuple[Edit, ...]]
"""A rule, the node that it is about, what stands there, and what mends it."""


@cache
def _by_name() -> Mapping[str, tuple[tuple[str, Rule], ...]]:
    """Last name of a call -> whole names and the rules about them."""
    found: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
    for rule in rules().values():
        for name in rule.when.get("call", ()) if rule.looks_at == "Python" else ():
            found[name.rpartition(".")[2]].append((name, rule))
    return {name: tuple(each) for name, each in found.items()}


def calls(module: Module) -> Iterator[Hit]:
    """What the table says of a file's calls."""
    table = _by_name()
    for last in table.keys() & module.calls.keys():
        for at in module.calls[last]:
            assert isinstance(at.node, ast.Call)
            dotted = module.dotted(at.node.func)
            for name, rule in table[last]:
                if dotted == name or (name.startswith(".") and "." in dotted and not _is_function(module, dotted)):
                    yield from _matched(module, at, rule)


def _is_function(module: Module, dotted: str) -> bool:
    """Whether a dotted name is a function of an imported package, not a method."""
    return dotted.partition(".")[0] in module.roots


def _matched(module: Module, at: At, rule: Rule) -> Iterator[Hit]:
    """A rule where its conditions hold for a call."""
    when, node = rule.when, at.node
    assert isinstance(node, ast.Call)
    given = {each.arg: each.value for each in node.keywords}
    if "imports" in when and not module.uses(*when["imports"]):
        return
    if "without" in when and (None in given or any(name in given for name in when["without"]) or _starred(node)):
        return
    if any(name not in given or _is(given[name], [0, None], module, rule, []) for name in when.get("having", ())):
        return
    if rule.id.startswith("loader.") and "TensorDataset" in module.text:
        return  # what is in memory already needs no workers
    if when.get("in") == "run" and is_debugging(module, at.place):
        return
    if "at_most" in when and len(node.args) > when["at_most"]:
        return
    if when.get("in") == "step" and not in_step(module, node, at.place):
        return
    edits: list[Edit] = []
    if "first" in when and not _is(node.args[0] if node.args else None, when["first"], module, rule, edits):
        return
    for name, values in when.get("keywords", {}).items():
        if not _is(given.get(name), values, module, rule, edits):
            return
    yield rule.id, node, module.code(node), tuple(edits)


def _starred(node: ast.Call) -> bool:
    return any(isinstance(each, ast.Starred) for each in node.args)


def _is(node: ast.expr | None, values: list[Any], module: Module, rule: Rule, edits: list[Edit]) -> bool:
    """Whether an argument is one of some literals; notes what is written in its place."""
    if not isinstance(node, ast.Constant) or not any(type(node.value) is type(each) and node.value == each for each in values):
        return False
    if "set" in rule.when:
        start, end = module.span(node)
        edits.append(Edit(start=start, end=end, text=rule.when["set"]))
    return True

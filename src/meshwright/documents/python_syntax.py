"""What a Python script sets, by its syntax tree: assignments to attributes, and keyword arguments of what it makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from meshwright.documents.source import UNKNOWN
from meshwright.errors import Message
from meshwright.value import Value

MAX_DEPTH = 50
_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
MAX_NUMBER = 10**18
Span = tuple[int, int]
"""Start and end in the UTF-8 bytes of the file."""


class Written(Value, frozen=True, kw_only=True):
    """One value where it stands: its key, itself, its own bytes and those of the statement or argument around it."""

    key: str
    value: object
    line: int
    span: Span
    whole: Span
    statement: bool
    """Whether ``whole`` is a statement (else a keyword argument)."""


@dataclass(slots=True, kw_only=True)
class _Place:
    """Something set on an object: the path of attributes, and the value or the name of another object."""

    path: tuple[str, ...]
    value: object
    refers: tuple[str, ...]
    """Another object, and the part of it that is meant; empty where the value is none."""
    node: ast.expr
    whole: ast.stmt | ast.keyword


@dataclass(slots=True, kw_only=True)
class Reader:
    """What a script sets, object by object, in its order."""

    text: str
    path: str
    constants: dict[str, object] = field(default_factory=dict)
    objects: dict[str, list[_Place]] = field(default_factory=dict)
    aliases: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    remarks: list[Message] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    conditional: int = 0
    parts: set[str] = field(default_factory=set)
    """Objects that went into another one by a call: what they set is no setting of the run by its own name."""
    imported: set[str] = field(default_factory=set)
    """Classes and modules that stand for themselves: ``torch``, and what is imported by name and written as a class."""

    def read(self, tree: ast.Module) -> None:
        """Module level, then the one function that configures something."""
        self.lines += [0, *(found.end() for found in re.finditer(rb"\r\n|\r|\n", self.text.encode()))]
        self.imported = {"torch", *_imported_classes(tree)}
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self._body([node for node in tree.body if not isinstance(node, ast.FunctionDef)])
        able = [node for node in functions if _configures(node)]
        if len(able) > 1:
            names = ", ".join(node.name for node in able[:8]) + (", ..." if len(able) > 8 else "")
            self.remarks.append(
                Message("python.functions", "{count} functions configure a run ({names}): {first} is read",
                        {"count": len(able), "names": names, "first": able[0].name}, self.path)
            )
        for node in able[:1]:
            self._body(node.body)

    def _body(self, body: Sequence[ast.stmt]) -> None:
        """Statements in their order; what depends on a condition is not known."""
        for node in body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value, node)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value, node)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                self._call("", node.value, node)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._handed(node.value)
            elif isinstance(node, (ast.If, ast.For, ast.While, ast.Try, ast.With)):
                known = isinstance(node, ast.With) or (isinstance(node, ast.If) and _is_main(node.test))
                self.conditional += not known
                for part in ("body", "orelse", "handlers", "finalbody"):
                    for each in getattr(node, part, []):
                        self._body(each.body if isinstance(each, ast.ExceptHandler) else [each])
                self.conditional -= not known

    def _handed(self, call: ast.Call) -> None:
        """A call that gets an object of the configuration may change it."""
        if any(chain[0] in self.objects or chain[0] in self.aliases for chain in _handed_to(call)):
            name = ".".join(_chain(call.func) or ("a call",))
            self.remarks.append(
                Message("python.handed", "{name} (line {line}) is handed the configuration and may change it: it is not followed",
                        {"name": name, "line": call.lineno}, self.path)
            )

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> None:
        """One assignment to a name or to an attribute of one."""
        chain = _chain(target)
        if chain is None:
            return
        name, attributes = chain[0], chain[1:]
        if not attributes:
            source = _chain(value)
            if isinstance(value, ast.Call):
                self._call(name, value, node)
            elif source is not None and len(source) > 1 and (source[0] in self.objects or source[0] in self.aliases):
                self.aliases[name] = self._owner(source[0], source[1:])
            else:
                self.constants[name] = UNKNOWN if self.conditional else self._value(value)
            return
        name, path = self._owner(name, attributes)
        self._put(name, path, value, node)

    def _owner(self, name: str, path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The object behind a name, and the path from there."""
        if name in self.aliases:
            owner, before = self.aliases[name]
            return owner, (*before, *path)
        return name, path

    def _call(self, name: str, call: ast.Call, node: ast.stmt) -> None:
        """An object that a call makes: its keyword arguments are its attributes; a call that is handed the object gives it back."""
        if name in self.objects and any(chain[0] == name for chain in _handed_to(call)):
            self._handed(call)
            return
        self.objects[name] = []
        self.aliases.pop(name, None)
        self._arguments(name, (), call)

    def _arguments(self, name: str, path: tuple[str, ...], call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg is not None and len(path) < MAX_DEPTH:
                self._put(name, (*path, keyword.arg), keyword.value, keyword)

    def _put(self, name: str, path: tuple[str, ...], value: ast.expr, whole: ast.stmt | ast.keyword) -> None:
        """Note what an attribute is set to."""
        places = self.objects.setdefault(name, [])
        if isinstance(value, ast.Call) and value.keywords and (_chain(value.func) or ("",))[-1][:1].isupper():
            self._arguments(name, path, value)
            return
        if isinstance(value, ast.Call):
            handed = [chain for chain in _handed_to(value) if chain[0] in self.objects]
            self.parts |= {chain[0] for chain in handed} - {name}
            if (name, *path) in handed:  # ``a.model = wrapped(a.model, b.model)``: what is set of it stays
                self._handed(value)
                return
        chain = _chain(value) or ("",)
        refers = chain if chain[0] in self.objects and chain[0] != name else ()
        found = UNKNOWN if self.conditional else self._value(value)
        places.append(_Place(path=path, value=found, refers=refers, node=value, whole=whole))

    def _value(self, node: ast.expr, depth: int = 0) -> object:
        """A literal, a constant of the script, simple arithmetic, or a dotted name as text; else unknown."""
        if isinstance(node, ast.Name):
            return self.constants.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            chain = _chain(node)
            return ".".join(chain) if chain and chain[0] in self.imported else UNKNOWN
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS and depth < MAX_DEPTH:
            left, right = self._value(node.left, depth + 1), self._value(node.right, depth + 1)
            return _computed(type(node.op), left, right)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return UNKNOWN

    def keys(self) -> Iterator[Written]:
        """Everything that is set, by key, in the order of the script."""
        referred = {place.refers[0] for places in self.objects.values() for place in places if place.refers}
        roots = [name for name in self.objects if name not in referred]
        found = [each for name in roots for each in self._of(name, (name,) if name in self.parts else (), (), 0)]
        return iter(sorted(found, key=lambda each: each.span))

    def _of(self, name: str, path: tuple[str, ...], part: tuple[str, ...], depth: int) -> Iterator[Written]:
        """What is set on an object, or on a part of it, below a path."""
        for place in self.objects.get(name, []) if depth < MAX_DEPTH else []:
            if place.path[: len(part)] != part:
                continue
            inner = (*path, *place.path[len(part) :])
            if place.refers:
                yield from self._of(place.refers[0], inner, place.refers[1:], depth + 1)
                continue
            yield Written(
                key=".".join(inner), value=place.value, line=place.node.lineno, span=self._span(place.node),
                whole=self._span(place.whole), statement=isinstance(place.whole, ast.stmt),
            )

    def root(self) -> str:
        """The variable that most statements assign to."""
        counts = {name: sum(isinstance(place.whole, ast.stmt) for place in places) for name, places in self.objects.items()}
        best = max(counts, key=lambda name: counts[name], default="")
        return best if counts.get(best) else ""

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> Span:
        assert node.end_lineno is not None and node.end_col_offset is not None, "the parser gives positions"
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset


def _imported_classes(tree: ast.Module) -> Iterator[str]:
    """Names that a script imports from elsewhere and that are written as classes are: their members are read as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (name for each in node.names if (name := each.asname or each.name)[0].isupper() and not name.isupper())


def _computed(operation: type[ast.operator], left: object, right: object) -> object:
    """Arithmetic of two whole numbers; unknown for anything else, and for what grows without bound."""
    if not (type(left) is int and type(right) is int) or max(abs(left), abs(right)) > MAX_NUMBER:
        return UNKNOWN
    if operation is ast.FloorDiv:
        return left // right if right else UNKNOWN
    return {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}[operation]


def _chain(node: ast.expr) -> tuple[str, ...] | None:
    """``a.b.c`` as names; None for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _handed_to(call: ast.Call) -> list[tuple[str, ...]]:
    """Names, and attributes of names, among the arguments of a call."""
    chains = (_chain(each) for each in (*call.args, *(keyword.value for keyword in call.keywords)))
    return [chain for chain in chains if chain]


def _configures(function: ast.FunctionDef) -> bool:
    """Whether a function sets attributes of attributes, or makes something of keyword arguments that it returns or names."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(len(_chain(target) or ()) > 2 for target in node.targets):
            return True
        if (
            isinstance(node, ast.Call)
            and node.keywords
            and (_chain(node.func) or ("",))[-1].endswith(("Config", "Container", "_config"))
        ):
            return True
    return False


def _is_main(test: ast.expr) -> bool:
    """``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"

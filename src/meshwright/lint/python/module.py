"""A parsed file of Python: one walk over its tree, after which every rule asks for the nodes that it is about."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

STRUCTURE = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.If,
    ast.With,
    ast.AsyncWith,
    ast.ExceptHandler,
    ast.Raise,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_KEPT = frozenset(
    {*STRUCTURE, ast.Call, ast.BinOp, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Assert, ast.Import, ast.ImportFrom}
)
_SIMPLE = frozenset(
    {ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal}
)
"""Nodes that hold none that is kept."""
_LINE_END = re.compile(rb"\r\n?|\n")
_STEPPERS = ("opt", "scaler", "engine", "trainer", "sgd", "adam")
_TRAIN = frozenset({"train_step", "training_step", "train_batch", "forward_backward_func", "forward_backward"})
_GRADIENTS = frozenset({"value_and_grad", "grad", "grad_and_value"})
"""What makes of a function one that computes its gradient: MindSpore's, and ``torch.func``'s."""


@dataclass(slots=True, eq=False)
class Place:
    """A piece of structure that holds nodes: a function, a loop, an ``if``, and the one around it."""

    node: ast.AST
    around: Place | None
    trains: bool = False
    """Whether a backward pass or an optimizer step stands directly in it: in no loop or function within."""
    steps: bool = False
    """Whether it is an optimizer step."""
    passes: bool = False
    """Whether it is a backward pass."""
    leaves: list[int] = field(default_factory=list)
    """Lines of conditions after which it returns or goes on with the next round."""


@dataclass(slots=True, eq=False)
class At:
    """A node where it stands."""

    node: ast.AST
    place: Place


class Module:
    """One file, parsed: its nodes by kind, its calls by their last name, what its imports are called."""

    def __init__(self, tree: ast.Module, text: str, path: str) -> None:
        """Walk the tree."""
        self.text, self.path, self.tree = text, path, tree
        self.by_kind: dict[type[ast.AST], list[At]] = defaultdict(list)
        self.calls: dict[str, list[At]] = defaultdict(list)
        self.names: dict[str, str] = {}
        """What an imported name stands for: ``F`` for ``torch.nn.functional``."""
        self.roots: set[str] = set()
        """Packages that are imported."""
        self._functions: dict[str, list[Place]] = defaultdict(list)
        self._walk(tree)
        self._follow()

    @cached_property
    def data(self) -> bytes:
        """The file as bytes, which its nodes count in."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def lines(self) -> list[int]:
        """Offset of each line in ``data``."""
        return [0, *(found.end() for found in _LINE_END.finditer(self.data))]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The bytes of a node."""
        assert isinstance(node, (ast.expr, ast.stmt, ast.keyword))
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def code(self, node: ast.AST) -> str:
        """A node as it is written, on one line."""
        start, end = self.span(node)
        return " ".join(self.data[start:end].decode("utf-8", "replace").split())

    def dotted(self, node: ast.AST) -> str:
        """``torch.cuda.synchronize`` for a name, imports resolved; what is called on something else begins with a dot."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.names.get(node.id, node.id))
        else:
            parts.append("")
        return ".".join(reversed(parts))

    def uses(self, *packages: str) -> bool:
        """Whether one of some packages is imported."""
        return any(package in self.roots for package in packages)

    def _walk(self, tree: ast.Module) -> None:
        """All nodes, each with its place, without recursion."""
        by_kind, names, structure = self.by_kind, self.names, frozenset(STRUCTURE)
        waiting: list[tuple[ast.AST, Place]] = [(tree, Place(tree, None))]
        while waiting:
            node, place = waiting.pop()
            kind = type(node)
            if kind in _KEPT:
                if kind is ast.Call:
                    self._call(node, place)  # type: ignore[arg-type]
                elif kind is ast.Import:
                    for alias in node.names:  # type: ignore[attr-defined]
                        self.roots.add(alias.name.partition(".")[0])
                        names[alias.asname or alias.name.partition(".")[0]] = (
                            alias.name if alias.asname else alias.name.partition(".")[0]
                        )
                elif kind is ast.ImportFrom:
                    home = node.module or ""  # type: ignore[attr-defined]
                    self.roots.add(home.partition(".")[0])
                    for alias in node.names:  # type: ignore[attr-defined]
                        names[alias.asname or alias.name] = f"{home}.{alias.name}" if not node.level else alias.name  # type: ignore[attr-defined]
                else:
                    by_kind[kind].append(At(node, place))
                    if kind is ast.If and _leaves(node):
                        _holder(place).leaves.append(node.lineno)  # type: ignore[attr-defined]
            inner = Place(node, place) if kind in structure and node is not tree else place
            if kind is ast.FunctionDef:
                self._functions[node.name].append(inner)  # type: ignore[attr-defined]
            for name in node._fields:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    home = inner if name not in ("decorator_list", "bases") else place
                    waiting += [(each, home) for each in value if isinstance(each, ast.AST) and each.__class__ not in _SIMPLE]
                elif isinstance(value, ast.AST) and value.__class__ not in _SIMPLE:
                    waiting.append((value, place if name in ("iter", "test") and kind is not ast.While else inner))
        for local, whole in names.items():
            last = whole.rpartition(".")[2]
            if last != local and local in self.calls:
                self.calls[last] += [at for at in self.calls[local] if isinstance(at.node.func, ast.Name)]  # type: ignore[attr-defined]
        for found in (*by_kind.values(), *self.calls.values()):
            found.reverse()

    def _follow(self) -> None:
        """Training that stands in a function of the file: what calls it trains, too, and so does what is differentiated.

        Of steps without a pass this is not said: optimizers make their states by an empty one when they load a checkpoint.
        """
        waiting = [name for name, places in self._functions.items() if any(place.passes for place in places)]
        for at in self.by_kind.get(ast.Assign, ()):
            assert isinstance(at.node, ast.Assign)
            made = at.node.value
            if not isinstance(made, ast.Call) or not made.args or _last(made.func) not in _GRADIENTS:
                continue
            if "autograd" not in self.dotted(made.func):  # which gives gradients, not a function of them
                for place in self._functions.get(_last(made.args[0]), ()):
                    place.trains = True
                waiting += filter(None, map(_last, at.node.targets))
        done: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in done:
                continue
            done.add(name)
            for at in self.calls.get(name, ()):
                if not _is_own(at.node):
                    continue
                holder = _holder(at.place)
                holder.trains = True
                if isinstance(holder.node, ast.FunctionDef) and holder.node.name != "main":
                    waiting.append(holder.node.name)

    def _call(self, node: ast.Call, place: Place) -> None:
        """Note a call, and what it makes of the loop or function that it stands in."""
        function = node.func
        if isinstance(function, ast.Attribute):
            name = function.attr
        elif isinstance(function, ast.Name):
            name = function.id
        else:
            return
        self.calls[name].append(At(node, place))
        if name == "backward" or name in _TRAIN:
            holder = _holder(place)
            holder.trains = holder.passes = True
        elif name == "step" and isinstance(function, ast.Attribute):
            owner = _last(function.value)
            if any(word in owner.lower() for word in _STEPPERS):
                holder = _holder(place)
                holder.trains = holder.steps = True


def _last(node: ast.AST) -> str:
    """The last name of an expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_own(node: ast.AST) -> bool:
    """Whether a call is of a name, or of an attribute of ``self``: of what the file itself may define."""
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    )


def _holder(place: Place) -> Place:
    """The nearest loop, function or module around a place."""
    while not isinstance(place.node, (*LOOPS, *FUNCTIONS, ast.Module, ast.ClassDef)) and place.around is not None:
        place = place.around
    return place


def _leaves(node: ast.AST) -> bool:
    """Whether a condition ends its round: its last statement returns, or goes on."""
    assert isinstance(node, ast.If)
    return isinstance(node.body[-1], (ast.Return, ast.Continue))

"""Copies that need not be: of arrays, of what is contiguous already, of what is about to be cut off its graph."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from meshwright.lint.found import Edit
from meshwright.lint.python.module import LOOPS
from meshwright.lint.python.places import in_step, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.lint.python.calls import Hit
    from meshwright.lint.python.module import Module, Place

_TENSORS = frozenset({"torch.tensor", "mindspore.Tensor"})
_FRESH = frozenset(
    f"numpy.{name}"
    for name in (
        "array",
        "zeros",
        "ones",
        "arange",
        "concatenate",
        "stack",
        "full",
        "empty",
        "vstack",
        "hstack",
        "load",
        "asarray",
        "ascontiguousarray",
        "frombuffer",
        "fromfile",
    )
)
_FACTORIES = frozenset(f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "rand", "randn", "arange", "eye", "linspace"))
_WITH_GRAPH = re.compile(
    r"^(?!.*(mask|tokens|count|num_)).*(loss|logit|hidden|output|grad|entropy|kl\b|ratio|reward|score|activ|embed|pred)", re.I
)
"""What is likely to hang on a graph, by its name."""
_TAKES_STRIDES = frozenset({"transpose", "permute", "t", "sum", "mean", "matmul", "softmax"})


def arrays(module: Module) -> Iterator[Hit]:
    """``torch.tensor(array)``: a copy of what ``from_numpy`` shares."""
    for name in ("tensor", "Tensor"):
        for at in module.calls.get(name, ()):
            node = at.node
            assert isinstance(node, ast.Call)
            dotted = module.dotted(node.func)
            if dotted.endswith(".Tensor") and dotted.startswith("mindspore"):
                dotted = "mindspore.Tensor"
            if dotted not in _TENSORS or not node.args:
                continue
            if len(node.args) > 1 or any(each.arg == "dtype" for each in node.keywords):
                continue  # another kind of number: there is a copy in any case
            first = node.args[0]
            if isinstance(first, ast.Call) and module.dotted(first.func) in _FRESH:
                yield "tensor.from-numpy", node, module.code(node), _shared(module, node, first, dotted)
            elif isinstance(first, ast.Name) and _is_array(module, first.id, at.place):
                yield "tensor.from-numpy", node, module.code(node), ()
            elif isinstance(first, ast.ListComp) and ".item()" in module.code(first.elt) and dotted == "torch.tensor":
                yield "tensor.list-of-items", node, module.code(node), ()


def _shared(module: Module, node: ast.Call, first: ast.Call, dotted: str) -> tuple[Edit, ...]:
    """``from_numpy`` in its place, where the array is new and nobody else's, and nothing else is asked for."""
    made = module.dotted(first.func).removeprefix("numpy.")
    if dotted != "torch.tensor" or node.keywords or len(node.args) != 1 or made not in ("zeros", "ones", "arange", "full"):
        return ()
    if any(each.arg == "dtype" for each in first.keywords) or len(first.args) > (1 if made in ("zeros", "ones") else 3):
        return ()  # a kind of number that from_numpy may not know
    if not isinstance(node.func, ast.Attribute):
        return ()
    start, end = module.span(node.func)
    return (Edit(start=end - len("tensor"), end=end, text="from_numpy"),) if start < end else ()


def _is_array(module: Module, name: str, place: Place) -> bool:
    """Whether the only value of a name in its function is an array that NumPy made."""
    around = owner_of(place)
    values = [
        at.node.value
        for at in module.by_kind.get(ast.Assign, ())
        if isinstance(at.node, ast.Assign)
        and owner_of(at.place) is around
        and any(isinstance(target, ast.Name) and target.id == name for target in at.node.targets)
    ]
    return bool(values) and all(isinstance(value, ast.Call) and module.dotted(value.func) in _FRESH for value in values)


def contiguous(module: Module) -> Iterator[Hit]:
    """``.contiguous()`` of what is so already, or in front of an operator that takes any strides."""
    for at in module.calls.get("contiguous", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        if not isinstance(node.func, ast.Attribute) or node.args or node.keywords:
            continue
        made = node.func.value
        if isinstance(made, ast.Call) and (
            module.dotted(made.func) in _FACTORIES
            or (isinstance(made.func, ast.Attribute) and made.func.attr == "contiguous" and not made.args)
        ):
            start, end = module.span(made)[1], module.span(node)[1]
            yield "tensor.contiguous-already", node, module.code(node), (Edit(start=start, end=end, text=""),)
    for name in _TAKES_STRIDES:
        for at in module.calls.get(name, ()):
            node = at.node
            assert isinstance(node, ast.Call)
            inner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if (
                isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr == "contiguous"
                and not inner.args
            ):
                yield "tensor.contiguous-needless", node, module.code(node), ()


def detached(module: Module) -> Iterator[Hit]:
    """``.clone().detach()``: the copy is noted for backward, and cut off."""
    for at in module.calls.get("detach", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Attribute) or inner.func.attr != "clone":
            continue
        if node.args or inner.args or inner.keywords:
            continue
        if not _WITH_GRAPH.search(module.code(inner.func.value)):
            continue
        (_, start), (_, end) = module.span(inner.func.value), module.span(node)
        plain = module.data[start:end] == b".clone().detach()"
        edits = (Edit(start=start, end=end, text=".detach().clone()"),) if plain else ()
        yield "tensor.clone-detach", node, module.code(node), edits


def loops(module: Module) -> Iterator[Hit]:
    """A batch that is fetched by a new iterator each time."""
    for at in module.calls.get("next", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        if not isinstance(node.func, ast.Name) or len(node.args) != 1 or not isinstance(node.args[0], ast.Call):
            continue
        inner = node.args[0]
        if not (isinstance(inner.func, ast.Name) and inner.func.id == "iter" and inner.args):
            continue
        code = module.code(inner.args[0])
        here: Place | None = at.place
        while here is not None and not isinstance(here.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if isinstance(here.node, LOOPS) and re.search("loader|dataset", code, re.IGNORECASE):
                yield "loader.iterator-in-loop", node, module.code(node), ()
                break
            here = here.around


def doubles(module: Module) -> Iterator[Hit]:
    """Arithmetic of 64 bits on the path of training."""
    for at in module.calls.get("double", ()):
        if (
            isinstance(at.node, ast.Call)
            and not at.node.args
            and isinstance(at.node.func, ast.Attribute)
            and in_step(module, at.node, at.place)
        ):
            yield "precision.float64", at.node, module.code(at.node), ()
    for names in module.calls.values():
        for at in names:
            assert isinstance(at.node, ast.Call)
            for each in at.node.keywords:
                if (
                    each.arg == "dtype"
                    and module.dotted(each.value) in ("torch.float64", "torch.double", "mindspore.float64")
                    and in_step(module, at.node, at.place)
                ):
                    yield "precision.float64", at.node, module.code(at.node), ()


RULES = (arrays, contiguous, detached, loops, doubles)

"""Formulas written out of small operators that PyTorch has fused: each operator reads and writes its whole tensor."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from meshwright.lint.python.places import class_of, is_forward, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.lint.python.calls import Hit
    from meshwright.lint.python.module import At, Module, Place

_COMPILED = re.compile(r"compile|jit|fuser|triton|script")


def _is_compiled(module: Module, place: Place) -> bool:
    """Whether a function around a place is compiled by its own decorator."""
    here: Place | None = place
    while here is not None:
        if isinstance(here.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            _COMPILED.search(module.code(each)) for each in here.node.decorator_list
        ):
            return True
        here = here.around
    return False


def _is_plain(module: Module, at: At) -> bool:
    """Whether a formula is run as it stands: in a function that is not compiled, of a file that is no test."""
    return owner_of(at.place) is not None and not _is_compiled(module, at.place)


def _method(node: ast.AST, name: str) -> ast.Call | None:
    """A node that is a call of this last name."""
    if isinstance(node, ast.Call):
        function = node.func
        if (isinstance(function, ast.Attribute) and function.attr == name) or (
            isinstance(function, ast.Name) and function.id == name
        ):
            return node
    return None


def rms_norm(module: Module) -> Iterator[Hit]:
    """``x * rsqrt(mean(x ** 2) + eps)``."""
    for at in module.calls.get("rsqrt", ()):
        if not _is_plain(module, at) or not module.uses("torch", "mindspore"):
            continue
        around = owner_of(at.place)
        assert around is not None
        code = module.code(around.node)
        owner = class_of(around)
        if re.search(r"-\s*\w+\.mean\(|-\s*(mean|mu|avg)\b|centered", code):
            continue  # a layer norm: what is squared has no mean
        if owner is not None and re.search("all_reduce|all_gather|compute_var", module.code(owner)):
            continue  # the sum is taken over ranks
        if re.search(r"\.(pow\(2\)|square\(\))\s*\.?\s*\.mean\(|mean\([^()]*(\*\*\s*2|square\()", code) and not re.search(
            r"var\(|all_reduce|group", code
        ):
            yield "formula.rms-norm", at.node, module.code(at.node), ()


def activations(module: Module) -> Iterator[Hit]:
    """``x * sigmoid(x)`` and the tanh form of GELU."""
    for at in module.by_kind.get(ast.BinOp, ()):
        node = at.node
        assert isinstance(node, ast.BinOp)
        if not isinstance(node.op, ast.Mult):
            continue
        for one, other in ((node.left, node.right), (node.right, node.left)):
            sigmoid = _method(other, "sigmoid")
            if sigmoid is not None and not sigmoid.keywords:
                inner = sigmoid.args[0] if sigmoid.args else sigmoid.func.value if isinstance(sigmoid.func, ast.Attribute) else None
                if inner is not None and ast.dump(inner) == ast.dump(one) and _is_plain(module, at):
                    yield "formula.silu", node, module.code(node), ()
        if isinstance(node.left, ast.Constant) and node.left.value == 0.044715 and _is_plain(module, at):
            around = owner_of(at.place)
            if (
                around is not None
                and "tanh(" in module.code(around.node)
                and "backward" not in module.code(around.node).lower()
                and "back" not in getattr(around.node, "name", "")
            ):
                yield "formula.gelu", node, module.code(node), ()


def losses(module: Module) -> Iterator[Hit]:
    """A logarithm of a softmax, a likelihood of a log-softmax, a softmax out of exponentials."""
    for at in module.calls.get("log", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
        if inner is None or not _is_plain(module, at):
            continue
        if _method(inner, "softmax") is not None:
            yield "formula.log-softmax", node, module.code(node), ()
        total = _method(inner, "sum")
        if total is not None:
            summed = (
                total.func.value
                if isinstance(total.func, ast.Attribute) and not module.dotted(total.func).startswith("torch.")
                else (total.args[0] if total.args else None)
            )
            if (
                summed is not None
                and (exponential := _method(summed, "exp")) is not None
                and module.uses("torch", "mindspore")
                and "numpy" not in module.dotted(exponential.func)
                and "math" not in module.dotted(exponential.func)
            ):
                yield "formula.logsumexp", node, module.code(node), ()
    for at in module.calls.get("nll_loss", ()):
        assert isinstance(at.node, ast.Call)
        if at.node.args and _method(at.node.args[0], "log_softmax") is not None and _is_plain(module, at):
            yield "formula.cross-entropy", at.node, module.code(at.node), ()


def attention(module: Module) -> Iterator[Hit]:
    """Scores, softmax and their product with the values, written out in one function."""
    if "flash" in module.text or "scaled_dot_product" in module.text:
        return  # the plain form beside the fused one
    for at in module.calls.get("softmax", ()):
        around = owner_of(at.place)
        if around is None or not isinstance(around.node, ast.FunctionDef) or not _is_plain(module, at):
            continue
        owner = class_of(around)
        name = f"{owner.name if owner is not None else ''}.{around.node.name}"
        code = module.code(around.node)
        if not re.search(r"att(entio)?n", name, re.IGNORECASE):
            continue
        products = re.findall(r"\b(?:matmul|bmm|baddbmm|einsum)\(| @ ", code)
        if len(products) >= 2 and re.search(r"transpose\(|\.mT\b|\.t\(\)|\.T\b|einsum\(|permute\(", code):
            yield "formula.attention", at.node, module.code(at.node), ()


def masks(module: Module) -> Iterator[Hit]:
    """A causal mask that each forward pass makes anew."""
    for name in ("tril", "triu"):
        for at in module.calls.get(name, ()):
            node, around = at.node, owner_of(at.place)
            assert isinstance(node, ast.Call)
            if around is None or not is_forward(module, around) or not node.args:
                continue
            if any(_method(node.args[0], made) is not None for made in ("ones", "full", "ones_like")):
                yield "formula.mask", node, module.code(node), ()


def rotary(module: Module) -> Iterator[Hit]:
    """A rotation of half a head by a concatenation."""
    if "fused" in module.text.lower():
        return  # the plain form beside the fused one
    for at in module.by_kind.get(ast.FunctionDef, ()):
        node = at.node
        assert isinstance(node, ast.FunctionDef)
        if (
            "rotate_half" in node.name
            and re.search(r"cat\(|concat\(|stack\(|Concat", module.code(node))
            and not any(_COMPILED.search(module.code(each)) for each in node.decorator_list)
        ):
            yield "formula.rotary", node, node.name, ()


RULES = (rms_norm, activations, losses, attention, masks, rotary)

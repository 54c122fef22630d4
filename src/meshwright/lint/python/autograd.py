"""What is kept for backward and never used there; what MindSpore's cells are told of it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from meshwright.lint.found import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.lint.python.calls import Hit
    from meshwright.lint.python.module import Module

_TENSOR_NAMES = frozenset(
    {"input", "input_", "inputs", "x", "weight", "hidden_states", "logits", "output", "q", "k", "v", "query", "key"}
)


def saved(module: Module) -> Iterator[Hit]:
    """Tensors of an autograd function that its backward pass never reads, or that the context holds by itself."""
    for at in module.by_kind.get(ast.ClassDef, ()):
        node = at.node
        assert isinstance(node, ast.ClassDef)
        if not any(module.dotted(base).endswith("autograd.Function") or module.dotted(base) == "Function" for base in node.bases):
            continue
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        forward, backward = methods.get("forward"), methods.get("backward")
        if forward is None or backward is None:
            continue
        yield from _unused(module, forward, backward)
        yield from _attributes(module, forward, backward)


def _unused(module: Module, forward: ast.FunctionDef, backward: ast.FunctionDef) -> Iterator[Hit]:
    """``a, b = ctx.saved_tensors`` of which one is never read."""
    stores = [
        each for each in ast.walk(forward) if isinstance(each, ast.Call) and module.dotted(each.func).endswith(".save_for_backward")
    ]
    if not stores:
        return
    if "saved_tensors" not in module.code(backward) and len(backward.body) < 30 and "saved_variables" not in module.code(backward):
        if "ctx" not in [
            each.id for each in ast.walk(backward) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
        ] and any(each.args for each in stores):
            yield "autograd.saved-unused", stores[0], module.code(stores[0]), ()
        return
    for statement in ast.walk(backward):
        if not isinstance(statement, ast.Assign) or not module.code(statement.value).endswith(".saved_tensors"):
            continue
        target = statement.targets[0]
        if not isinstance(target, ast.Tuple):
            continue
        names = [each.id for each in target.elts if isinstance(each, ast.Name)]
        read = {each.id for each in ast.walk(backward) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
        unused = [name for name in names if name not in read]
        if unused and "locals()" not in module.code(backward):
            yield "autograd.saved-unused", statement, ", ".join(unused), ()


def _attributes(module: Module, forward: ast.FunctionDef, backward: ast.FunctionDef) -> Iterator[Hit]:
    """``ctx.x = x`` of an argument that is a tensor by its name."""
    parameters = {each.arg for each in forward.args.args[1:]}
    for statement in ast.walk(forward):
        if (
            not isinstance(statement, ast.Assign)
            or not isinstance(statement.value, ast.Name)
            or statement.value.id not in parameters
        ):
            continue
        target = statement.targets[0]
        if (
            isinstance(target, ast.Attribute)
            and module.dotted(target).startswith("ctx.")
            and statement.value.id in _TENSOR_NAMES
            and re.search(rf"ctx\.{target.attr}\b", module.code(backward))
        ):
            yield "autograd.attribute", statement, module.code(statement), ()


def cells(module: Module) -> Iterator[Hit]:
    """Cells of MindSpore with a backward pass of their own that keep all that it might be given."""
    if not module.uses("mindspore", "mindspeed_ms"):
        return
    for at in module.by_kind.get(ast.ClassDef, ()):
        node = at.node
        assert isinstance(node, ast.ClassDef)
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        if not any(module.dotted(base).endswith("Cell") for base in node.bases):
            continue
        if "bprop" in methods and "used_bprop_inputs" not in module.code(node):
            yield "mindspore.bprop-inputs", methods["bprop"], node.name, ()
    for at in module.by_kind.get(ast.ClassDef, ()):
        node = at.node
        assert isinstance(node, ast.ClassDef)
        if not any(re.search(r"(^|\.)(Optimizer|AdamW|Adam|AdamWeightDecay)$", module.dotted(base)) for base in node.bases):
            continue
        for each in node.body:
            if (
                isinstance(each, ast.FunctionDef)
                and each.name == "construct"
                and not any("jit" in module.code(one) for one in each.decorator_list)
                and not any(
                    "jit" in module.code(one)
                    for method in node.body
                    if isinstance(method, ast.FunctionDef)
                    for one in method.decorator_list
                )
            ):
                yield "mindspore.jit-optimizer", each, node.name, ()


def contexts(module: Module) -> Iterator[Hit]:
    """``set_context`` with switches of debugging on."""
    if not module.uses("mindspore"):
        return
    for at in module.calls.get("set_context", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        for each in node.keywords:
            if not isinstance(each.value, ast.Constant):
                continue
            value, span = each.value.value, module.span(each.value)
            code = module.code(each)
            if each.arg == "deterministic" and str(value).upper() == "ON":
                yield "mindspore.deterministic", each, code, ()
            elif each.arg == "pynative_synchronize" and value is True:
                yield "mindspore.synchronize", each, code, (Edit(start=span[0], end=span[1], text="False"),)
            elif each.arg == "pynative_synchronize" and value is False:
                yield "mindspore.synchronize-for-memory", each, code, (Edit(start=span[0], end=span[1], text="True"),)
            elif each.arg == "save_graphs" and value not in (False, 0):
                yield "mindspore.save-graphs", each, code, (Edit(start=span[0], end=span[1], text="False"),)


def mints(module: Module) -> Iterator[Hit]:
    """Operators of ``ops`` that have a counterpart in ``mint``: one finding a file."""
    if not module.uses("mindspore"):
        return
    if re.search(r"graph|infer|convert|transform_ckpt", module.path.rpartition("/mindformers/")[2]):
        return  # static graphs, and what does not train
    for name in _MINT:
        for at in module.calls.get(name, ()):
            dotted = module.dotted(getattr(at.node, "func", at.node))
            if dotted == f"mindspore.ops.{name}":
                yield "mindspore.mint", at.node, module.code(at.node), ()
                return


_MINT = (
    "matmul",
    "add",
    "mul",
    "sub",
    "div",
    "cat",
    "concat",
    "split",
    "softmax",
    "gelu",
    "silu",
    "bmm",
    "einsum",
    "zeros",
    "ones",
    "full",
    "mean",
    "sum",
    "max",
    "argmax",
    "topk",
    "sort",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "pow",
    "where",
    "masked_select",
    "gather",
    "stack",
)

RULES = (saved, cells, contexts, mints)

"""Whether a node runs in every step: in the loop or function that trains, and under no condition that spares most steps."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from meshwright.lint.python.module import FUNCTIONS, LOOPS

if TYPE_CHECKING:
    from meshwright.lint.python.module import Module, Place

_RARELY = re.compile(
    "%|not self\\.training|past_key|None|log|debug|verbose|profil|eval|print|save|interval|every|freq|dump|trac|monitor"
    "|warn|nan|rank|main|first|last|step|iter|epoch|export|onnx|script|test|report|generat|infer|cache|decod|display"
    "|summary|ckpt|checkpoint|timer|barrier|is_cpu|record|stats|empty|memory|level|determin|seed|nvtx|reproduc|anomaly"
    "|metric|compil|capture|offload|hasattr|vis|valid|assert|check",
    re.IGNORECASE,
)
"""Conditions that hold in few steps, or in none of a training."""
_STEPS = frozenset(
    {"training_step", "train_step", "train_one_step", "forward_step", "train_batch", "forward_backward", "loss_func"}
)
_NO_STEP = re.compile(r"eval|infer|generat|valid|bench|predict|sampl|export|convert|(^|_)test", re.IGNORECASE)
_DEBUGS = re.compile(r"determin|debug|profil|seed|reproduc|nvtx|anomaly|bench|(^|_)test", re.IGNORECASE)
_NO_MODULE = re.compile(r"Dataset|Config|Test|Sampler|Tokenizer|Mock|Dummy|Fake|Toy|Vision.*Processor")


def in_step(module: Module, node: ast.AST, place: Place) -> bool:
    """Whether a node runs in every step, on the path of training."""
    if _NO_STEP.search(re.split(r"[/\\]", module.path)[-1]):
        return False
    line = getattr(node, "lineno", 0)
    here: Place | None = place
    while here is not None and not isinstance(here.node, (ast.Module, ast.ClassDef)):
        if isinstance(here.node, (ast.ExceptHandler, ast.Raise)) or (
            isinstance(here.node, ast.If) and rarely(module, here.node.test)
        ):
            return False
        if (
            isinstance(here.node, (*LOOPS, *FUNCTIONS))
            and any(left < line for left in here.leaves)
            and _left_early(module, here, line)
        ):
            return False
        if isinstance(here.node, LOOPS) and here.trains:
            return not _infers(here)
        if isinstance(here.node, FUNCTIONS):
            return is_step(module, here)
        here = here.around
    return False


def in_training_loop(place: Place) -> bool:
    """Whether a place stands in a loop that trains, under whatever condition."""
    here: Place | None = place
    while here is not None and not isinstance(here.node, FUNCTIONS):
        if isinstance(here.node, LOOPS) and here.trains:
            return True
        here = here.around
    return False


def is_step(module: Module, place: Place) -> bool:
    """Whether a function is (a part of) the step: it runs the backward pass, or it is the forward pass of a module."""
    node = place.node
    if isinstance(node, ast.Lambda) or _infers(place):
        return False
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if any(
        "no_grad" in module.dotted(_callee(each)) or "inference_mode" in module.dotted(_callee(each))
        for each in node.decorator_list
    ):
        return False
    if node.name in _STEPS or (place.trains and node.name != "main"):
        return True
    return is_forward(module, place)


def is_forward(module: Module, place: Place) -> bool:
    """Whether a function is the forward pass of a module, or a pass of an autograd function."""
    node, owner = place.node, place.around
    if not isinstance(node, ast.FunctionDef) or owner is None or not isinstance(owner.node, ast.ClassDef):
        return False
    bases = [module.dotted(each) for each in owner.node.bases]
    if not bases or bases == ["object"] or _NO_MODULE.search(owner.node.name):
        return False
    if node.name == "backward" and any(base.endswith("Function") for base in bases):
        return True
    return node.name in ("forward", "construct") and not any(_NO_MODULE.search(base) for base in bases)


def rarely(module: Module, test: ast.AST) -> bool:
    """Whether a condition spares most steps."""
    return _RARELY.search(module.code(test)) is not None


def is_debugging(module: Module, place: Place) -> bool:
    """Whether a place is run only where somebody asked for it: under a condition, or in a function, that is about debugging."""
    here: Place | None = place
    while here is not None:
        if isinstance(here.node, ast.If) and rarely(module, here.node.test):
            return True
        if isinstance(here.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _DEBUGS.search(here.node.name):
            return True
        here = here.around
    return False


def owner_of(place: Place) -> Place | None:
    """The function around a place; None at the top."""
    here: Place | None = place
    while here is not None and not isinstance(here.node, FUNCTIONS):
        here = here.around
    return here


def class_of(place: Place) -> ast.ClassDef | None:
    """The class around a place."""
    here: Place | None = place
    while here is not None and not isinstance(here.node, ast.ClassDef):
        here = here.around
    return here.node if here is not None and isinstance(here.node, ast.ClassDef) else None


def _infers(place: Place) -> bool:
    """Whether a place stands in a function that does not train, by its name."""
    here: Place | None = place
    while here is not None:
        if isinstance(here.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _NO_STEP.search(here.node.name):
            return True
        here = here.around
    return False


def _left_early(module: Module, place: Place, line: int) -> bool:
    """Whether a condition above a line leaves most rounds."""
    body = getattr(place.node, "body", [])
    return any(
        isinstance(each, ast.If) and each.lineno in place.leaves and each.lineno < line and rarely(module, each.test)
        for each in body
    )


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node

"""What a training script as a whole lets go: accumulation that synchronises, optimizers, switches, garbage, profilers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from meshwright.frameworks.variables import habits
from meshwright.lint.found import Edit
from meshwright.lint.python.module import LOOPS
from meshwright.lint.python.places import in_step, is_debugging

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.frameworks.variables import Habit
    from meshwright.lint.python.calls import Hit
    from meshwright.lint.python.module import Module, Place

_SWITCHES = {
    ("torch.backends.cudnn.deterministic", True): ("debug.cudnn-deterministic", ""),
    ("torch.backends.cuda.matmul.allow_tf32", False): ("precision.tf32-off", ""),
    ("torch.autograd.profiler.emit_nvtx", True): ("debug.nvtx", ""),
    ("torch.backends.cudnn.enabled", False): ("debug.cudnn-off", ""),
}
"""Attribute and value -> the rule about it, and what mends it."""


def switches(module: Module) -> Iterator[Hit]:
    """Attributes of PyTorch that are set for good."""
    for at in module.by_kind.get(ast.Assign, ()):
        node = at.node
        assert isinstance(node, ast.Assign)
        if not isinstance(node.value, ast.Constant):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                found = _SWITCHES.get((module.dotted(target), node.value.value))  # type: ignore[arg-type]
                if found is not None and not is_debugging(module, at.place):
                    yield found[0], node, module.code(node), ()


def environment(module: Module) -> Iterator[Hit]:
    """Variables that a script sets for itself, by the rows that launch scripts are judged by."""
    named: dict[str, list[Habit]] = {habit.variable: [] for habit in habits()}
    for habit in habits():
        named[habit.variable].append(habit)
    for at in module.by_kind.get(ast.Assign, ()):
        node = at.node
        assert isinstance(node, ast.Assign)
        for target in node.targets:
            if isinstance(target, ast.Subscript) and module.dotted(target.value) == "os.environ":
                yield from _variable(module, node, target.slice, node.value, named, at.place)
    for at in module.calls.get("setdefault", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        if module.dotted(node.func) == "os.environ.setdefault" and len(node.args) == 2:
            yield from _variable(module, node, node.args[0], node.args[1], named, at.place)


def _variable(
    module: Module, node: ast.AST, name: ast.expr, value: ast.expr, named: Mapping[str, list[Habit]], place: Place
) -> Iterator[Hit]:
    """A variable and its value, where both are written out."""
    if not isinstance(name, ast.Constant) or not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return
    if is_debugging(module, place):
        return
    for habit in named.get(str(name.value), ()):
        if habit.bad(value.value):
            edits: tuple[Edit, ...] = ()
            if habit.replacement is not None:
                start, end = module.span(value)
                edits = (Edit(start=start, end=end, text=f'"{habit.replacement}"'),)
            yield habit.id, node, value.value, edits


def accumulation(module: Module) -> Iterator[Hit]:
    """Gradients that are accumulated over several backward passes and reduced in each of them."""
    text = module.text
    if "DistributedDataParallel" not in text and "DDP(" not in text:
        return
    if re.search(r"no_sync|require_backward_grad_sync|set_requires_gradient_sync|deepspeed|Accelerator\(", text):
        return
    for at in module.calls.get("backward", ()):
        place: Place | None = at.place
        while place is not None and not isinstance(place.node, LOOPS):
            place = place.around
        if place is None:
            continue
        for step in module.calls.get("step", ()):
            if (
                isinstance(step.place.node, ast.If)
                and step.place.around is place
                and "%" in module.code(step.place.node.test)
                and "accum" in module.code(step.place.node.test).lower()
            ):
                yield "distributed.no-sync", at.node, module.code(at.node), ()
                break


def garbage(module: Module) -> Iterator[Hit]:
    """A loop of a distributed training in which each rank collects garbage when it likes."""
    text = module.text
    if "gc." in text or "import gc" in text or not module.uses("torch"):
        return
    if "torch.distributed" not in text or "init_process_group" not in text:
        return
    for kind in LOOPS:
        for at in module.by_kind.get(kind, ()):
            if any(each.place.node is at.node for each in module.calls.get("backward", ())):
                yield "step.garbage", at.node, "", ()
                return


def profilers(module: Module) -> Iterator[Hit]:
    """A profiler without a schedule around the loop that trains."""
    for at in module.by_kind.get(ast.With, ()):
        node = at.node
        assert isinstance(node, ast.With)
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call) or module.dotted(call.func) not in (
                "torch.profiler.profile",
                "torch.autograd.profiler.profile",
            ):
                continue
            if any(each.arg in ("schedule", None) for each in call.keywords):
                continue
            if any(isinstance(each, LOOPS) and "backward(" in module.code(each) for each in ast.walk(node)):
                yield "debug.profiler", call, module.code(call), ()


def scalers(module: Module) -> Iterator[Hit]:
    """A gradient scaler in a file whose only autocast is to bfloat16."""
    if "bfloat16" not in module.text or "float16" in module.text.replace("bfloat16", "") or "half" in module.text:
        return
    casts = [module.code(at.node) for at in module.calls.get("autocast", ())]
    if not casts or not all("bfloat16" in each for each in casts):
        return
    for at in module.calls.get("GradScaler", ()):
        assert isinstance(at.node, ast.Call)
        if not at.node.keywords or not any(each.arg == "enabled" for each in at.node.keywords):
            yield "precision.scaler-for-bf16", at.node, module.code(at.node), ()


def evaluations(module: Module) -> Iterator[Hit]:
    """An evaluation that keeps what a backward pass would need."""
    if any(word in module.text for word in ("no_grad", "inference_mode", "set_grad_enabled", "lightning", "stop_gradient")):
        return
    if not module.uses("torch"):
        return
    for at in module.by_kind.get(ast.FunctionDef, ()):
        node = at.node
        assert isinstance(node, ast.FunctionDef)
        if not re.match(r"(evaluate|eval_|validate|validation|test)(_|$|\b)", node.name):
            continue
        code = module.code(node)
        if re.search(r"\bmodel\.eval\(\)", code) and re.search(r"\bmodel\(", code) and ".backward(" not in code:
            yield "memory.no-grad", node, node.name, ()


def saves(module: Module) -> Iterator[Hit]:
    """Checkpoints, whole states and reports of memory in every step."""
    for rule, name, dotted in (
        ("step.save", "save", "torch.save"),
        ("step.object-collective", "all_gather_object", ""),
        ("step.object-collective", "broadcast_object_list", ""),
        ("step.object-collective", "gather_object", ""),
    ):
        for at in module.calls.get(name, ()):
            node = at.node
            if dotted and module.dotted(getattr(node, "func", node)) != dotted:
                continue
            if isinstance(at.place.node, (ast.If, ast.Try)) or not in_step(module, node, at.place):
                continue
            yield rule, node, module.code(node), ()


RULES = (switches, environment, accumulation, garbage, profilers, scalers, evaluations, saves)

"""Where the host waits for the device in every step."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from meshwright.lint.python.module import LOOPS
from meshwright.lint.python.places import in_step, in_training_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.lint.python.calls import Hit
    from meshwright.lint.python.module import At, Module

_TRUTHS = frozenset({"any", "all", "isnan", "isinf", "isfinite", "equal", "allclose"})
_LOSS = re.compile(r"(^|_)(loss|losses|grad_norm|norms?)(_|$|es$)", re.IGNORECASE)
_NUMBERS = re.compile(
    r"\.item\(|\blen\(|\bnumel\(|\.shape|\.size\(|\.tolist\(|float\(|\bint\(|1 for |1\.0|\bcount|num_|_size|time|length",
    re.IGNORECASE,
)
_TENSORS = re.compile(r"\bloss|grad\b|\.norm\(|\.grad\b|\.mean\(|\.square\(|\.pow\(", re.IGNORECASE)
_HOST = re.compile(
    r"(^|\.|_)(np|numpy|cpu|math|statistics|os|time|json|list|dict|cfg|config|args|opts)(\.|_|\(|$)|cpu|\.numpy\(|\.shape|numel\(",
    re.IGNORECASE,
)


def items(module: Module) -> Iterator[Hit]:
    """``.item()``, ``.tolist()``, ``.cpu()``, ``.numpy()`` of what may live on the device."""
    for rule, name in (
        ("step.item", "item"),
        ("step.tolist", "tolist"),
        ("step.cpu", "cpu"),
        ("step.numpy", "numpy"),
        ("step.asnumpy", "asnumpy"),
    ):
        for at in module.calls.get(name, ()):
            node = at.node
            assert isinstance(node, ast.Call)
            if node.args or not isinstance(node.func, ast.Attribute) or not in_step(module, node, at.place):
                continue
            owner = module.code(node.func.value)
            if _HOST.search(owner) or (name == "numpy" and owner.endswith(".cpu()")) or _is_list(node.func.value):
                continue
            if re.match(r"torch\.tensor\(", owner) and "device" not in owner:
                continue
            yield rule, node, module.code(node), ()


def _is_list(node: ast.expr) -> bool:
    """Whether an expression is a list or a call of a plain function of Python's."""
    return isinstance(node, (ast.List, ast.ListComp, ast.Tuple)) or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("range", "list", "dict", "set", "sorted")
    )


def to_host(module: Module) -> Iterator[Hit]:
    """``.to("cpu")``."""
    for at in module.calls.get("to", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        first = node.args[0] if node.args else next((each.value for each in node.keywords if each.arg == "device"), None)
        if (
            isinstance(first, ast.Constant)
            and first.value == "cpu"
            and in_step(module, node, at.place)
            and not any(each.arg == "non_blocking" for each in node.keywords)
            and not _is_object(module, node)
        ):
            yield "step.cpu", node, module.code(node), ()


def _is_object(module: Module, node: ast.Call) -> bool:
    """Whether a method is called on a name that holds what a class has made: no tensor."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and any(
        isinstance(at.node, ast.Assign)
        and isinstance(at.node.value, ast.Call)
        and module.dotted(at.node.value.func).rpartition(".")[2][:1].isupper()
        and any(isinstance(target, ast.Name) and target.id == owner.id for target in at.node.targets)
        for at in module.by_kind.get(ast.Assign, ())
    )


def truths(module: Module) -> Iterator[Hit]:
    """A tensor that decides which way the program goes: in an ``if``, a ``while`` or an ``assert``."""
    for kind in (ast.If, ast.While, ast.Assert):
        for at in module.by_kind.get(kind, ()):
            test = at.node.test  # type: ignore[attr-defined]
            found = _truth(module, test)
            if found is not None and in_step(module, at.node, at.place):
                yield "step.truth", test, module.code(test), ()


def _truth(module: Module, test: ast.expr) -> ast.Call | None:
    """The reduction of a tensor to one truth that a condition is."""
    waiting = [test]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.BoolOp):
            waiting += node.values
        elif isinstance(node, ast.UnaryOp):
            waiting.append(node.operand)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TRUTHS:
            dotted = module.dotted(node.func)
            if dotted.startswith("torch.") or (
                node.func.attr in ("any", "all") and not node.args and not dotted.startswith(("numpy.", "np."))
            ):
                return None if _HOST.search(module.code(node)) else node
    return None


def prints(module: Module) -> Iterator[Hit]:
    """``print`` in every step of a distributed run."""
    if not re.search("distributed|rank|Accelerator|deepspeed", module.text):
        return
    for at in module.calls.get("print", ()):
        if (
            isinstance(at.node, ast.Call)
            and isinstance(at.node.func, ast.Name)
            and in_step(module, at.node, at.place)
            and in_training_loop(at.place)
        ):
            yield "step.print", at.node, module.code(at.node), ()


def sums(module: Module) -> Iterator[Hit]:
    """Python's ``sum`` over tensors."""
    for at in module.calls.get("sum", ()):
        node = at.node
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        code = module.code(node.args[0])
        if _TENSORS.search(code) and not _NUMBERS.search(code) and in_step(module, node, at.place):
            yield "step.sum", node, module.code(node), ()


def graphs(module: Module) -> Iterator[Hit]:
    """A loss that is kept with its graph: appended or added up as it is after its own backward pass."""
    backward = [
        at for at in module.calls.get("backward", ()) if isinstance(at.node, ast.Call) and isinstance(at.node.func, ast.Attribute)
    ]
    losses = {at.node.func.value.id for at in backward if isinstance(at.node.func.value, ast.Name)}  # type: ignore[attr-defined]
    if not losses:
        return
    for at in module.calls.get("append", ()):
        node = at.node
        assert isinstance(node, ast.Call)
        if len(node.args) == 1 and isinstance(node.args[0], ast.Name) and node.args[0].id in losses and in_training_loop(at.place):
            yield "memory.kept-graph", node, module.code(node), ()
    for at in module.by_kind.get(ast.AugAssign, ()):
        node = at.node
        assert isinstance(node, ast.AugAssign)
        if (
            isinstance(node.op, ast.Add)
            and isinstance(node.value, ast.Name)
            and node.value.id in losses
            and in_training_loop(at.place)
        ) and not (isinstance(node.target, ast.Name) and node.target.id in losses):
            yield "memory.kept-graph", node, module.code(node), ()


def host_copies(module: Module) -> Iterator[Hit]:
    """Copies to the device that the host waits for: batches without ``non_blocking``, tensors made on the host first."""
    for name in ("cuda", "to", "npu"):
        for at in module.calls.get(name, ()):
            node = at.node
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not _moves(module, node, name):
                continue
            made = node.func.value
            if (
                isinstance(made, ast.Call)
                and module.dotted(made.func) in _MADE
                and not any(each.arg == "device" for each in made.keywords)
            ):
                if in_step(module, node, at.place) and not any(
                    isinstance(each, ast.Constant) and each.value == "cpu" for each in node.args
                ):
                    yield "step.made-on-host", node, module.code(node), ()
            elif not any(each.arg == "non_blocking" for each in node.keywords) and _of_batch(module, at):
                yield "step.blocking-copy", node, module.code(node), ()


_MADE = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "rand", "randn", "arange", "eye", "linspace", "randint")
)
_DEVICE = re.compile(
    r"^(self\.)?(\w+\.)?(device|local_rank|cuda_device|rank|dev)$|^['\"]cuda|^torch\.(device|cuda\.current_device)\(|current_device\(\)$"
)
_BATCH = re.compile(r"batch|input|label|target|token|mask|sample|images?|^[xy]$|data", re.IGNORECASE)


def _moves(module: Module, node: ast.Call, name: str) -> bool:
    """Whether a call copies its tensor to a device, without any word on how."""
    if name in ("cuda", "npu"):
        return len(node.args) <= 1
    return (
        len(node.args) == 1
        and not any(each.arg == "dtype" for each in node.keywords)
        and bool(_DEVICE.search(module.code(node.args[0])))
    )


def _of_batch(module: Module, at: At) -> bool:
    """Whether a copy is of a batch, in the loop that trains."""
    node = at.node
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    owner = module.code(node.func.value)
    if "accelerator.device" in module.code(node) and "prepare(" in module.text:
        return False  # prepared loaders hand out batches that are there
    if not in_training_loop(at.place) or not in_step(module, node, at.place) or re.search(r"model|loss|criterion|\(", owner):
        return False
    return _BATCH.search(owner) is not None or (owner in ("v", "t", "value", "val") and "batch" in module.text)


def norms(module: Module) -> Iterator[Hit]:
    """A norm or an all-reduce of each parameter's gradient in a loop of Python."""
    for kind in LOOPS:
        for at in module.by_kind.get(kind, ()):
            node = at.node
            if not isinstance(node, ast.For) or "parameters()" not in module.code(node.iter):
                continue
            for each in ast.walk(node):
                if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Attribute):
                    continue
                owner = module.code(each.func.value)
                if each.func.attr == "norm" and ".grad" in owner + "".join(map(module.code, each.args)):
                    if not (module.dotted(each.func).startswith("torch.") and "foreach" in each.func.attr):
                        yield "clip.norm-by-hand", each, module.code(each), ()
                elif each.func.attr == "all_reduce" and each.args and ".grad" in module.code(each.args[0]):
                    yield "distributed.reduce-by-hand", each, module.code(each), ()
                elif each.func.attr == "zero_" and re.search(r"\.grad(\.data|\.detach\(\))?$", owner):
                    yield "step.zero-by-hand", each, module.code(each), ()


RULES = (items, to_host, truths, prints, sums, graphs, host_copies, norms)

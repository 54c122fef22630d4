"""Which module is at work: what a peak of memory is named after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_iter

from meshwright.engine.fake import in_backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

WRAPPERS = ("_checkpoint_wrapped_module", "_orig_mod")
"""Modules that PyTorch's wrappers put between ours."""


class Whereabouts:
    """Follows forwards by hooks on all modules, backwards by hooks on what modules gave; active while it is entered."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._names = {
            id(inner): ".".join(part for part in name.split(".") if part not in WRAPPERS) or "model"
            for module in modules
            for name, inner in module.named_modules()
        }
        self._stack: list[str] = []
        self._behind = ""
        self.updating = False

    def __enter__(self) -> Whereabouts:
        """Set the hooks."""
        self._hooks = (register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def now(self) -> str:
        """``forward of blocks.0.feed``, ``backward of head``, or the update."""
        if in_backward():
            again = f", again {self._stack[-1]}" if self._stack else ""
            return f"backward of {self._behind or 'the loss'}{again}"
        return f"forward of {self._stack[-1]}" if self._stack else "between modules"

    def _enter(self, module: nn.Module, _: Any) -> None:
        if not in_backward() and not self._stack:
            self._behind = ""
        self._stack.append(self._names.get(id(module), type(module).__name__))

    def _leave(self, module: nn.Module, _: Any, out: Any) -> None:
        name = self._stack.pop() if self._stack else ""

        def behind(__: Tensor) -> None:
            self._behind = name

        for tensor in tree_iter(out):
            if isinstance(tensor, Tensor) and tensor.requires_grad and not in_backward():
                tensor.register_hook(behind)  # type: ignore[no-untyped-call]

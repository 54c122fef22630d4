"""Operators and bytes of a call, counted as PyTorch dispatches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS = ("aten.detach", "aten.alias", "aten._unsafe_view", "aten._reshape_alias", "aten.empty", "aten.new_empty")
"""Operators that move nothing although they are not marked as views."""
PICKS = ("aten.embedding.", "aten.index.")
"""Operators that read no more of a tensor than they give back."""


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered: every operator that is no view reads its tensors and writes its results, each once.

    A tensor that is broadcast counts what it holds; one that is changed in place counts as read and as written.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.operators = self.views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and count it."""
        out = func(*args, **(kwargs or {}))
        if func.is_view or str(func).startswith(LOOKS):
            self.views += 1
        else:
            self.operators += 1
            written = sum(_size(each) for each in _tensors(out))
            most = written if str(func).startswith(PICKS) else float("inf")
            self.bytes += written + int(sum(min(_size(each), most) for each in _tensors((args, kwargs or {}))))
        return out


def _tensors(part: object) -> list[Tensor]:
    return list({id(each): each for each in tree_iter(part) if isinstance(each, Tensor)}.values())


def _size(tensor: Tensor) -> int:
    """Bytes that a tensor really holds: broadcast dimensions have none of their own."""
    held = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        held *= size if stride else 1
    return held * tensor.element_size()


def traffic_of(call: Callable[[], object]) -> dict[str, float]:
    """``bytes``, ``operators`` and ``views`` of one call."""
    with Traffic() as counted:
        call()
    return {"bytes": float(counted.bytes), "operators": float(counted.operators), "views": float(counted.views)}

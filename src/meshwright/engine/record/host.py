"""What the host does beside a step's work: garbage collection, waits for the device, compilation, and when autograd is at work."""

from __future__ import annotations

import gc
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.engine.record.spent import Spent

WAITS = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
"""Methods of a tensor that wait until the device has its value."""


@contextmanager
def watched_host(spent: Spent) -> Iterator[None]:
    """Count collections, waits and compilations into ``spent`` while it is entered; nothing of the work changes."""
    def collected(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            spent.begin("gc")
        else:
            spent.end()

    with ExitStack() as stack:
        for name in WAITS:
            stack.enter_context(_timed(torch.Tensor, name, spent, "synchronise"))
        stack.enter_context(_timed(torch.autograd, "backward", spent, "backward"))
        stack.enter_context(_compiled(spent))
        gc.callbacks.append(collected)
        stack.callback(gc.callbacks.remove, collected)
        yield


@contextmanager
def timed_modules(modules: Any, spent: Spent) -> Iterator[None]:
    """Count the forward passes of modules; those within a backward pass are its own."""
    def begin(*_: Any) -> None:
        spent.begin("forward")

    def end(*_: Any) -> None:
        spent.end()

    hooks = [hook for module in modules for hook in (
        module.register_forward_pre_hook(begin, prepend=True), module.register_forward_hook(end, always_call=True))]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _timed(owner: Any, name: str, spent: Spent, what: str) -> Iterator[None]:
    """A function of ``owner`` that is counted while this is entered."""
    there = name in vars(owner)
    before: Callable[..., Any] = getattr(owner, name)

    @wraps(before)
    def timed(*given: Any, **more: Any) -> Any:
        with spent.within(what):
            return before(*given, **more)

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, before) if there else delattr(owner, name)


@contextmanager
def _compiled(spent: Spent) -> Iterator[None]:
    from torch._dynamo.callback import callback_handler

    def begin(*_: Any) -> None:
        spent.begin("compile")

    def end(*_: Any) -> None:
        spent.end()

    callback_handler.register_start_callback(begin)
    callback_handler.register_end_callback(end)
    try:
        yield
    finally:
        callback_handler.remove_start_callback(begin)
        callback_handler.remove_end_callback(end)

"""Operators of the reference step, counted on fake tensors: ``python -m tests.engine.reference_operators``, jobs on standard input.

A layer is the difference of two runs that differ by layers. An operator in a hook of a sharded unit is told by FSDP2's own marks.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from tests.warm import Interpreter

from meshwright.engine.dry_run import CONVERTER, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOKS = {"view", "_unsafe_view", "detach", "alias", "_reshape_alias", "flatten", "to"}
"""Operators that move nothing although they are not marked as views, or are made of others that are counted."""
MAKES = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
PRODUCTS = {"mm", "bmm", "addmm", ATTENTION, f"{ATTENTION}_backward"}
PICKS = {"nll_loss_forward": (0, 1), "nll_loss_backward": (0, 1), "embedding": (0,), "index_put_": (0,), "gather": (0,)}
"""Arguments of which an operator reads few elements: one a row."""


def counts_of(jobs: Sequence[Job]) -> list[dict[str, float]]:
    """What every job counts, in a process of its own: ``forward unit bytes``, ``backward calls`` and so on -> number."""
    text = json.dumps([CONVERTER.unstructure(job, Job) for job in jobs])
    with Interpreter([sys.executable, "-m", "tests.engine.reference_operators"]) as process:
        said, complained = process.communicate(text)
    assert process.returncode == 0, complained[-2000:]
    found: list[dict[str, float]] = json.loads(said.splitlines()[-1])
    return found


def _count(job: Job) -> dict[str, float]:
    from torch import Tensor
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    from meshwright.engine.dry_run_subjects import reference
    from meshwright.engine.fake import fake_tensors, fake_world, in_backward

    def size(each: Tensor) -> int:
        held = 1
        for length, stride in zip(each.shape, each.stride(), strict=True):
            held *= length if stride else 1
        return held * each.element_size()

    class Count(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.found: Counter[str] = Counter()
            self.marks: list[str] = []
            self.updating = False

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented
            made = function(*args, **(kwargs or {}))
            name = function._schema.name.split("::")[-1]
            if name == "_record_function_enter_new":
                self.marks.append(args[0])
            elif name == "_record_function_exit":
                self.marks.pop()
            elif function.namespace in ("aten", "fsdp") and not function.is_view and name not in LOOKS | MAKES:
                self._add(function, name, args, kwargs or {}, made)
            return made

        def _add(self, function: Any, name: str, args: Any, kwargs: Any, made: Any) -> None:
            unit = any(mark.startswith("FSDP::") for mark in self.marks)
            phase = "update" if self.updating else "backward" if in_backward() else "forward"
            place = f"{phase} unit" if unit or phase == "update" else phase
            self.found[f"{place} calls"] += 1
            if name in PRODUCTS:
                return
            read = [each for number, each in enumerate(args) if number not in PICKS.get(name, ())]
            inside = {id(each): size(each) for each in tree_iter((read, kwargs)) if isinstance(each, Tensor)}
            outside = [size(each) for each in tree_iter(made) if isinstance(each, Tensor)]
            if name in ("copy_", "_foreach_copy_", "all_gather_copy_in", "split_with_sizes_copy", "chunk_cat"):
                moved = self._copied(name, args, kwargs, made)
            else:
                moved = sum(inside.values()) + sum(outside)
            self.found[f"{place} bytes"] += moved
            self.found[f"{place} bytes {name}"] += moved

        def _copied(self, name: str, args: Any, kwargs: Any, made: Any) -> int:
            """Copies read what they are given and write as many elements of what they fill."""
            if name == "copy_":
                return size(args[0]) + size(args[1])
            if name == "_foreach_copy_":
                return sum(map(size, args[0])) + sum(map(size, args[1]))
            given = args[0] if name in ("all_gather_copy_in", "chunk_cat") else (args[0],)
            read = sum(map(size, given))
            if name == "chunk_cat":
                return read + size(kwargs["out"])
            return 2 * read

    with fake_world(job.layout.world, job.rank), fake_tensors():
        subject, count = reference(job), Count()
        for step in range(2):
            with count:
                if step:
                    count.found.clear()
                subject.ahead()
                count.updating = True
                subject.update()
                count.updating = False
    return dict(count.found)


def main() -> None:
    """Count every job; the last line of output has them all."""
    jobs = CONVERTER.structure(json.load(sys.stdin), list[Job])
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [_count(job) for job in jobs]
    print(json.dumps(found))


if __name__ == "__main__":
    main()

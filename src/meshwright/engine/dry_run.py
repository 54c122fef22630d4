"""Dry runs: the reference step of one rank of any world, on tensors without memory. Each in a process of its own.

PyTorch has one process group per process, and a step that goes wrong may take its process with it. This module starts such
processes and reads what they found; it does not import torch itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import cattrs
from cattrs.strategies import configure_tagged_union

from meshwright.domain.layout import Full, Layout, Recompute, Selective
from meshwright.domain.mixers import Mixer
from meshwright.domain.model import MixtureOfExperts, Mlp, Model
from meshwright.errors import InputError, Message, NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S, POLL_S = 1800.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One rank of one world, one step."""

    layout: Layout
    rank: int
    sequence_tokens: int
    model: Model | None = None
    """What the reference step, or ``megatron``, is built from."""
    builder: str = "reference"
    """``reference``, ``megatron`` (megatron-core's GPTModel), or the user's own ``module:function``."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Collective:
    """One sort of message: ``payload_bytes`` is the whole tensor (gathered, or before it is scattered), all calls together."""

    operation: str
    ranks: int
    calls: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one step of one rank needs, in bytes and FLOPs, after a step that has made the optimizer's states."""

    rank: int
    parameters: int
    """Elements of parameters that this rank holds."""
    peak_bytes: int
    peak_by_purpose: dict[str, int]
    """Live bytes where they are most together; sums to ``peak_bytes``."""
    peak_at: str
    parameter_bytes: int
    """Of this rank's own parameters; whole ones of sharded modules come on top (``gathered_bytes``)."""
    gathered_bytes: int
    """Whole parameters of sharded modules when they are most."""
    gradient_bytes: int
    """When the optimizer begins."""
    optimizer_bytes: int
    activation_bytes: int
    """What forwards have left for backwards, when it is most: all micro-batches in flight."""
    product_flops: int
    """Of matrix products, recomputed ones too."""
    attention_flops: int
    """Of scaled dot products, whole squares: two products forward, five backward."""
    scan_flops: int = 0
    """Of the recurrences of linear mixers, in chunks."""
    collectives: tuple[Collective, ...] = ()
    seconds: float = field(default=0.0, compare=False)


def dry_run(jobs: Sequence[Job], *, workers: int = 2) -> list[Found]:
    """What the jobs find, in their order; ``workers`` processes at a time, each job in one of its own.

    Errors:  InputError without torch, or where the layout, the user's function or this PyTorch is at fault;
             NoAnswerError where a process ends without a word.
    """
    require_torch()
    ended = Event()
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(jobs)))) as pool:
        results = pool.map(lambda job: in_process([job], ended), jobs)
        try:
            return [found for batch in results for found in batch]
        finally:  # one that failed, or an interrupt, ends the others
            pool.shutdown(wait=False, cancel_futures=True)
            ended.set()


def require_torch() -> None:
    """Refuse where torch is not installed."""
    if find_spec("torch") is None:
        raise fault("dryrun.no-torch", "a dry run needs PyTorch: pip install 'meshwright[torch]'")


def in_process(jobs: Sequence[Job], ended: Event | None = None) -> list[Found]:
    """Jobs one after the other in one process of their own: quicker for many small ones, as torch is imported once.

    ``ended`` is how another thread ends it.
    """
    text = json.dumps([CONVERTER.unstructure(job, Job) for job in jobs])
    command, pipe = [sys.executable, "-m", "meshwright.engine.dry_run_worker"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=_environment()) as process:
        try:
            said, complained = _exchanged(process, text, ended)
        finally:
            process.kill()  # where it has not ended by itself
    answer = _answer(said)
    if answer is None:
        last = (complained.strip().splitlines() or ["no message"])[-1]
        values = {"status": process.returncode, "last": last}
        raise NoAnswerError(Message("dryrun.died", "the dry run's process ended with status {status}: {last}", values))
    if "fault" in answer:
        raise InputError(Message(answer["fault"]["id"], "{text}", {"text": answer["fault"]["text"]}))
    return CONVERTER.structure(answer["found"], list[Found])


def _exchanged(process: subprocess.Popen[str], text: str, ended: Event | None) -> tuple[str, str]:
    """What a process prints on both streams, once it has been told the text; nothing of one that is to end."""
    until, given = time.monotonic() + TIMEOUT_S, [text]
    while ended is None or not ended.is_set():
        try:
            return process.communicate(given.pop() if given else None, timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                values = {"s": TIMEOUT_S}
                raise NoAnswerError(Message("dryrun.timeout", "the dry run took more than {s:.0f} s", values)) from None
    return "", ""


def _environment() -> dict[str, str]:
    """This process's, in which the same Meshwright is found from any directory."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _answer(text: str) -> dict[str, Any] | None:
    """The last line, where it is an answer: a user's function may print."""
    lines = text.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def extrapolated(two: Found, four: Found, *, fewer: int, more: int, layers: int) -> Found:
    """What ``layers`` layers find, from ``fewer`` and ``more`` of them: all figures are linear in layers.

    Holds:   layers are alike, and both runs peak at the same place; the peak is the sum of its purposes.
    """

    def along(one: int, other: int) -> int:
        return one + (other - one) * (layers - fewer) // (more - fewer)

    names = ("parameters", "parameter_bytes", "gathered_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes",
             "product_flops", "attention_flops", "scan_flops")
    peak = {name: along(two.peak_by_purpose[name], four.peak_by_purpose[name]) for name in two.peak_by_purpose}
    first = {(each.operation, each.ranks): each for each in two.collectives}
    messages = []
    for each in four.collectives:
        one = first.get((each.operation, each.ranks))
        calls, payload = (one.calls, one.payload_bytes) if one else (0, 0)
        messages.append(Collective(
            operation=each.operation, ranks=each.ranks, calls=along(calls, each.calls),
            payload_bytes=along(payload, each.payload_bytes),
        ))
    return Found(
        rank=two.rank, peak_bytes=sum(peak.values()), peak_by_purpose=peak, peak_at=four.peak_at, collectives=tuple(messages),
        seconds=two.seconds + four.seconds, **{name: along(getattr(two, name), getattr(four, name)) for name in names},
    )


def _converter() -> cattrs.Converter:
    """Jobs and findings as JSON and back; variants say which they are."""
    converter = cattrs.Converter()
    counts = int | tuple[tuple[int, ...], ...] | None

    def read(value: Any, _: Any) -> Any:
        return tuple(map(tuple, value)) if isinstance(value, list) else value

    converter.register_structure_hook_func(lambda kind: kind == counts, read)
    for variants in (Mlp | MixtureOfExperts, Mixer, Selective | Full, Recompute):
        configure_tagged_union(variants, converter)
    maybe = Mixer | None
    converter.register_unstructure_hook_func(
        lambda kind: kind == maybe, lambda value: None if value is None else converter.unstructure(value, Mixer)
    )
    converter.register_structure_hook_func(
        lambda kind: kind == maybe, lambda value, _: None if value is None else converter.structure(value, Mixer)  # type: ignore[arg-type]
    )
    return converter


CONVERTER = _converter()

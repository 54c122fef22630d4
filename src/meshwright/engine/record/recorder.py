"""One rank's record of a run: who it is and what it belongs to, each exchange when it begins and when it is done, each step."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from meshwright.domain.label import label
from meshwright.engine.classify import classify
from meshwright.engine.launch import cores_here
from meshwright.engine.record.collectives import Watched
from meshwright.engine.record.host import timed_modules, watched_host
from meshwright.engine.record.journal import Journal
from meshwright.engine.record.spent import OTHER, Spent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.engine.data import Sample
    from meshwright.engine.record.collectives import Call
    from meshwright.engine.request import Request
    from meshwright.engine.step import Trainer

FORMAT = "meshwright step record 1"
ROUNDS = 5
"""Meetings from which the offset of a rank's clock is taken."""
PARTS = ("data", "forward", "backward", "optimizer", "communication", OTHER)
HOST = ("gc", "synchronise", "compile")
IGNORED = 0
"""Targets below it are of no token: padding."""


class Silent:
    """Records nothing."""

    def step(self, number: int) -> AbstractContextManager[None]:
        """A step of which nothing is kept."""
        return nullcontext()

    def part(self, name: str) -> AbstractContextManager[None]:
        """A part of it."""
        return nullcontext()

    def saw(self, sample: Sample, loss: float) -> None:
        """What the step was about."""


class Recorder(Silent):
    """Writes ``rank-N.jsonl``."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._spent = journal, Spent()
        self._groups: set[str] = set()
        self._dimensions: dict[str, str] = {}
        self._watched: Watched | None = None
        self._said: dict[str, Any] = {}

    @contextmanager
    def of(self, trainer: Trainer, request: Request) -> Iterator[None]:
        """Watch a trainer, and take note of how it ends."""
        self._dimensions = dimensions_of(trainer)
        self._journal.add(_header(request, trainer))
        with ExitStack() as stack:
            stack.enter_context(watched_host(self._spent))
            stack.enter_context(timed_modules(trainer.parts, self._spent))
            stack.enter_context(_timed_step(trainer.optimizer, self._spent))
            self._watched = stack.enter_context(Watched(trainer.device.type, self._spent, self._begun, self._done, self._met))
            try:
                yield
            except BaseException as error:
                kind, text = classify(error)
                self._journal.add({"end": kind, "text": text[:200], "at_s": perf_counter()})
                raise
            self._journal.add({"end": "done", "at_s": perf_counter()})

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """One step, its data included."""
        start = perf_counter()
        self._said = {}
        self._journal.add({"begun": number, "start_s": start})
        self._spent.restart()
        yield
        self._spent.settle()
        end = perf_counter()
        if self._watched is not None:
            self._watched.settle()
        spent, times = self._spent.seconds, self._spent.times
        self._journal.add({
            "step": number, "start_s": start, "duration_s": end - start,
            "parts": {name: spent.get(name, 0.0) for name in PARTS},
            "host": {name: [times[name], spent.get(name, 0.0)] for name in HOST if name in times},
            "memory": _memory(), "threads": torch.get_num_threads(), **self._said,
        })

    def part(self, name: str) -> AbstractContextManager[None]:
        """A part of the step that nothing else tells."""
        return self._spent.within(name)

    def saw(self, sample: Sample, loss: float) -> None:
        """Tokens that the rank was given, those of them that are padding, and the mean loss."""
        padded = int((sample.targets < IGNORED).sum())
        self._said = {"tokens": sample.tokens.numel(), "padded_tokens": padded, "loss": loss}

    def _met(self, group: Any) -> None:
        name = str(group.group_name)
        if name not in self._groups:
            self._groups.add(name)
            ranks = dist.get_process_group_ranks(group)
            self._journal.add({"group": name, "dimension": self._dimensions.get(name, "world"), "ranks": ranks})

    def _begun(self, call: Call) -> None:
        self._journal.add({
            "called": call.operation, "of": call.group, "sequence": call.sequence, "payload_bytes": call.payload_bytes,
            "start_s": call.start_s,
        })

    def _done(self, call: Call) -> None:
        self._journal.add({"done": call.sequence, "of": call.group, "end_s": call.end_s, "blocked_s": call.blocked_s})


@contextmanager
def recording(request: Request, trainer: Trainer) -> Iterator[Silent]:
    """The recorder that a request asks for; every rank calls it."""
    if not request.options.record:
        yield Silent()
        return
    journal = Journal(Path(request.options.record) / f"rank-{dist.get_rank()}.jsonl")
    try:
        recorder = Recorder(journal)
        with recorder.of(trainer, request):
            yield recorder
    finally:
        journal.close()


@contextmanager
def _timed_step(optimizer: Any, spent: Spent) -> Iterator[None]:
    before = optimizer.step

    def step() -> None:
        with spent.within("optimizer"):
            before()

    optimizer.step = step
    try:
        yield
    finally:
        del optimizer.step


def _header(request: Request, trainer: Trainer) -> dict[str, Any]:
    layout, options = request.layout, request.options
    offset, spread, how = _clock(trainer.device)
    return {
        "format": FORMAT, "rank": dist.get_rank(), "world": dist.get_world_size(), "layout": label(layout),
        "model": request.model.name, "device": trainer.device.type, "torch": str(torch.__version__),
        "global_batch_sequences": request.tokens // request.sequence_tokens, "sequence_tokens": request.sequence_tokens,
        "warmup_steps": options.warmup_steps, "steps": options.steps, "asked_threads": options.threads, "cores": cores_here(),
        "ranks_here": int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())),
        "flops_per_step": request.flops_per_step, "peak_flops_per_s": request.peak_flops_per_s,
        "clock": {"offset_s": offset, "spread_s": spread, "how": how},
    }


def dimensions_of(trainer: Trainer) -> dict[str, str]:
    """Name of a process group -> dimension of the layout."""
    ranks = trainer.ranks
    meshes: list[tuple[Any, str]] = [(ranks.tensor, "tp"), *((ranks.mesh[name], name) for name in ("tp", "cp", "pp", "dp"))]
    meshes += [(ranks.replicas["replicate"], "dp"), (ranks.replicas["shard"], "dp"), (ranks.ends, "pp"), (ranks.owners, "dp")]
    if ranks.experts is not None:
        meshes += [(ranks.experts["experts"], "ep"), (ranks.experts["replicate"], "dp"), (ranks.experts["shard"], "dp")]
    meshes.append((ranks.expert_owners, "dp"))
    found: dict[str, str] = {}
    for mesh, name in meshes:
        if mesh is not None and mesh.size() > 1:  # one group may be several: the world's is that of the only dimension
            found.setdefault(str(mesh.get_group().group_name), name)
    return found


def _clock(device: torch.device) -> tuple[float, float, str]:
    """This rank's clock less that of rank 0 -> (seconds, their spread over meetings, how it is known).

    Ranks of one host have one clock. Others meet several times, and what their clocks show behind a meeting is compared.
    """
    everybody: list[Any] = [None] * dist.get_world_size()
    readings = []
    for _ in range(ROUNDS):
        dist.all_reduce(torch.zeros(1, device=device))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        readings.append(perf_counter())
    dist.all_gather_object(everybody, (_host(), readings))
    host, first = everybody[0]
    if host and host == _host():
        return 0.0, 0.0, "one clock"
    offsets = [own - other for own, other in zip(readings, first, strict=True)]
    return median(offsets), max(offsets) - min(offsets), "meetings"


def _host() -> str:
    """What tells this start of this machine from others; empty where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


def _memory() -> dict[str, int]:
    """Bytes of this rank: at most so far, and live at the end of the step; of the process where there is no device."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {
            "peak_bytes": torch.cuda.max_memory_allocated(), "live_bytes": torch.cuda.memory_allocated(),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        }
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:
        live = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        live = most
    return {"peak_bytes": most, "live_bytes": live}

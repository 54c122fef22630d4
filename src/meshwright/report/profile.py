"""What a profile measured: by benchmark, from which to which time, and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, get_args

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.domain.sample import Bench
from meshwright.engine.profile.statistics import NOISY_RATIO
from meshwright.report.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.fitted import FittedMachine
    from meshwright.engine.profile.run import Profile

WORDS: dict[str, str] = {
    "product": "matrix product", "grouped": "products of experts", "attention": "attention", "pass": "pass",
    "operator": "host, operator", "distributed": "host, redistribution", "unit": "host, sharded unit",
    "message": "host, pipeline hop", "transfer": "copy", "collective": "collective", "beside": "products beside",
    "memory": "large copy",
}
DETAILS = ("direction", "kind", "operation")
"""Arguments that tell sorts of one benchmark apart, the first that a sample has."""
COLUMNS = ("measured", "samples", "shortest", "median", "longest", "interval", "at best")
FIT_COLUMNS = ("the cost model says it again", "samples", "median error", "worst", "corrected by others")
MOST_TOO_LONG = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Samples of one sort."""

    bench: str
    detail: str
    samples: int
    least_s: float
    median_s: float
    most_s: float
    interval_ratio: float
    """Half of the interval of a median, relative to it: the median over samples."""
    spread_ratio: float
    """Worst over best block, the median over samples."""
    best: str
    """The greatest speed seen, in words; empty where there is none."""


def groups(samples: Sequence[Sample]) -> list[Group]:
    """Samples by benchmark and sort, in the order of the vocabulary."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.bench, _detail(sample)), []).append(sample)
    order = {word: place for place, word in enumerate(get_args(Bench))}
    return [_group(bench, detail, found[bench, detail]) for bench, detail in sorted(found, key=lambda key: (order[key[0]], key[1]))]


def _detail(sample: Sample) -> str:
    if sample.bench == "pass":
        return str(sample.arguments.get("kind", ""))
    words = [str(sample.arguments[name]) for name in DETAILS if name in sample.arguments][:1]
    if sample.bench == "collective":
        words += [f"of {sample.arguments.get('ranks')}", *(["network"] if sample.arguments.get("tier") == "network" else [])]
    return " ".join(words)


def _group(bench: str, detail: str, samples: Sequence[Sample]) -> Group:
    times = sorted(each.seconds for each in samples)
    return Group(
        bench=bench, detail=detail, samples=len(samples), least_s=times[0], median_s=median(times), most_s=times[-1],
        interval_ratio=median(each.noise_ratio for each in samples),
        spread_ratio=median(each.worst_s / max(each.best_s, 1e-12) for each in samples), best=_best(samples),
    )


def _best(samples: Sequence[Sample]) -> str:
    """FLOP/s where there is arithmetic, bytes per second of what is moved otherwise."""
    for name, unit in (("flops", "FLOP/s"), ("bytes", "B/s")):
        speeds = [each.values[name] / each.seconds for each in samples if each.values.get(name)]
        if speeds:
            best = max(speeds)
            return f"{best / 1e12:,.4g} T{unit}" if best >= 1e12 else f"{best / 1e9:,.3g} G{unit}"
    return ""


def profile_view(profile: Profile, found: FittedMachine | None, path: str | None, samples: str) -> dict[str, Any]:
    """The JSON of ``profile``; ``path`` and ``fit`` are null where no cluster file was written."""
    return {
        "path": path, "samples_path": samples, "samples": len(profile.samples), "reused": profile.reused,
        "seconds": profile.seconds, "noise_ratio": profile.noise_ratio, "noisy": profile.noise_ratio > NOISY_RATIO,
        "device": profile.machine.name, "machine": profile.machine.document(), "too_long": list(profile.too_long),
        "benches": [
            {"bench": each.bench, "kind": each.detail, "samples": each.samples, "least_s": each.least_s, "median_s": each.median_s,
             "most_s": each.most_s, "interval_ratio": each.interval_ratio, "spread_ratio": each.spread_ratio}
            for each in groups(profile.samples)
        ],
        "fit": None if found is None else [
            {"bench": each.bench, "samples": each.samples, "median_error_ratio": each.median_ratio,
             "worst_error_ratio": each.worst_ratio, "held_out_error_ratio": each.held_out_ratio} for each in found.benches
        ],
    }


def profile_report(profile: Profile, found: FittedMachine | None, path: str | None, samples: str) -> Iterator[RenderableType]:
    """What was measured, how sure it is, how well the cost model says it again, and where it went."""
    machine = profile.machine
    yield Text(machine.name, style="bold")
    memory = gib(machine.memory_bytes)
    ranks = f"{plural(machine.ranks, 'rank')} at once, {plural(machine.threads, 'thread')} each"
    yield Text(f"{machine.kind}, {memory}, {plural(machine.cores, 'core')}; {ranks}; torch {machine.torch}")
    there = f", {profile.reused} of them from before" if profile.reused else ""
    yield Text(f"{plural(len(profile.samples), 'sample')}{there}, in {profile.seconds:,.0f} s")
    table = _table(COLUMNS)
    for each in groups(profile.samples):
        times = [seconds(each.least_s), seconds(each.median_s), seconds(each.most_s)]
        name, sure = f"{WORDS[each.bench]} {each.detail}".strip(), f"± {percent(each.interval_ratio)}"
        table.add_row(name, str(each.samples), *times, sure, each.best)
    yield Padding(table, (1, 0, 1, 2))
    if found is not None:
        yield Padding(_fitted(found), (0, 0, 1, 2))
    yield from _remarks(profile)
    if path is not None:
        yield Text(f"cluster file  {path}", no_wrap=True)
    yield Text(f"samples       {samples}", no_wrap=True)


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    return table


def _fitted(found: FittedMachine) -> Table:
    """Errors of the cost model with the fitted figures."""
    table = _table(FIT_COLUMNS)
    for each in found.benches:
        corrected = "" if each.held_out_ratio is None else percent(each.held_out_ratio)
        table.add_row(each.bench, str(each.samples), percent(each.median_ratio), percent(each.worst_ratio, 0), corrected)
    return table


def _remarks(profile: Profile) -> Iterator[Text]:
    if profile.noise_ratio > NOISY_RATIO:
        yield Text(
            f"noisy machine: blocks of products took up to {profile.noise_ratio:.2f} times as long as the best of them; "
            "measure when nothing else runs",
            style="yellow",
        )
    if profile.too_long:
        shown = "; ".join(profile.too_long[:MOST_TOO_LONG])
        more = f" and {len(profile.too_long) - MOST_TOO_LONG} more" if len(profile.too_long) > MOST_TOO_LONG else ""
        yield Text(f"left out, for they take too long here: {shown}{more}")

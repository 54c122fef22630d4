"""JSON of ``profile``: the document of the contract."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, get_args

from meshwright.domain.sample import Bench
from meshwright.engine.profile.statistics import NOISY_RATIO
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.fitted import FittedMachine
    from meshwright.engine.profile.run import Profile


DETAILS = ("direction", "kind", "operation")
"""Arguments that tell sorts of one benchmark apart, the first that a sample has."""


class Group(Value, frozen=True, kw_only=True):
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

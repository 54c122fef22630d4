"""``meshwright profile``: micro-benchmarks of this machine or allocation, and the cluster file that says what they say."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, cast

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.options import JSON
from meshwright.errors import Message, NoAnswerError

if TYPE_CHECKING:
    from meshwright.engine.profile.jobs import World
    from meshwright.engine.profile.machine import Kind
    from meshwright.engine.profile.run import Asked, Profile

EPILOG = (
    "Example: meshwright profile --ranks 2 --out machine.yaml, then meshwright plan ... --cluster machine.yaml. "
    "Over nodes: torchrun --nnodes 2 --nproc-per-node 8 ... -m meshwright profile. Samples are kept as they come: "
    "the same command goes on where it was stopped."
)
DEFAULT_OUT = "machine.yaml"
ENDINGS = (".yaml", ".yml")
_WHAT, _OUTPUT = "Profile", "Output"
FIELDS = (
    Field(name="ranks", parse=numbers.count_or_none, metavar="N", panel=_WHAT,
          help="Processes that measure at once: as many as a run has [default: one a core, or one a device]."),
    Field(name="device", parse=one_of("cpu", "cuda", "npu"), metavar="cpu|cuda|npu", panel=_WHAT,
          help="What is measured [default: the accelerator that torch reaches, or the processor]."),
    Field(name="quick", kind="flag", panel=_WHAT, help="Fewer sizes and wider intervals, in about a minute."),
    Field(name="minutes", parse=numbers.positive, metavar="M", panel=_WHAT,
          help="Time for a whole profile [default: 5, or 1 with --quick]."),
    Field(name="out", metavar="FILE.yaml", panel=_OUTPUT, help=f"The cluster file [default: {DEFAULT_OUT}]."),
    Field(name="name", metavar="NAME", panel=_OUTPUT, help="Name of the cluster in it [default: that of the file]."),
    Field(name="samples", metavar="FILE.jsonl", panel=_OUTPUT,
          help="Where samples are kept; those that are there are not measured again [default: beside the cluster file]."),
    Field(name="force", kind="flag", panel=_OUTPUT, help="Write the cluster file even where the machine was too noisy."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Measure what is missing, write the cluster file, and say what was found."""
    from meshwright.engine.launch import require_torch

    out, name, samples = _places(values, faults)
    require_torch()
    from meshwright.engine.profile.joined import joined_ranks

    world = joined_ranks()
    if world is not None and values.get("ranks", world.ranks) != world.ranks:
        faults.add("profile.world", "--ranks {ranks} in a world of {world}: leave it out under torchrun", path="--ranks",
                   ranks=values["ranks"], world=world.ranks)
    faults.check()
    profile = _profile(_asked(values, samples), world)
    if profile is None:  # a rank that is not the first
        return 0
    return _answer(values, profile, out, name, samples)


def _places(values: Values, faults: Faults) -> tuple[str, str, str]:
    """Cluster file, name and samples; what cannot be written is refused before anything is measured."""
    from meshwright.api.files import check_file
    from meshwright.engine.profile.clusterfile import NAME

    out = values.get("out", DEFAULT_OUT)
    if not out.endswith(ENDINGS):
        faults.add("profile.out", "{out!r} does not end in .yaml", path="--out", out=out)
    samples = values.get("samples", str(Path(out).with_suffix(".samples.jsonl")) if Path(out).name else "samples.jsonl")
    if samples.endswith(ENDINGS):
        faults.add("profile.samples", "{samples!r} is the name of a cluster file; samples end in .jsonl", path="--samples",
                   samples=samples)
    name = values.get("name", Path(out).stem.lower().replace(" ", "-"))
    if not NAME.fullmatch(name):
        faults.add("profile.name", "{name!r} is no name of a cluster: small letters, digits, '.', '_' and '-'", path="--name",
                   name=name)
    if "ranks" in values and values["ranks"] < 1:
        faults.add("profile.ranks", "0 ranks cannot measure anything", path="--ranks")
    for path in (out, samples):
        with faults:
            check_file(path)
        _check_directory(path, faults)
    _check_replaced(out, values["force"], faults)
    faults.check()
    return out, name, samples


def _check_directory(path: str, faults: Faults) -> None:
    """Refuse a directory in which no file can be made."""
    import os

    folder = Path(path).parent
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        faults.add("profile.directory", "its directory cannot be written to", path=path)


def _check_replaced(out: str, force: bool, faults: Faults) -> None:
    """Refuse to replace a file that no profile has written."""
    from meshwright.engine.profile.clusterfile import MARK

    target = Path(out)
    if force or not target.is_file():
        return
    with target.open("rb") as stream:
        ours = stream.read(len(MARK)) == MARK.encode()
    if not ours:
        faults.add("profile.replaces", "exists and no profile has written it; --force replaces it", path=out)


def _asked(values: Values, samples: str) -> Asked:
    from meshwright.engine.profile.run import Asked, default_kind, default_ranks

    kind = cast("Kind", values.get("device") or default_kind())
    return Asked(samples=Path(samples), ranks=values.get("ranks") or default_ranks(kind), kind=kind, quick=values["quick"],
                 minutes=values.get("minutes"))


def _profile(asked: Asked, world: World | None) -> Profile | None:
    """Measured by ranks of this host, or as one rank of an allocation."""
    from meshwright.cli.output import progress
    from meshwright.engine.profile.joined import measured_joined
    from meshwright.engine.profile.run import measured

    try:
        with warnings.catch_warnings(record=True) as said, progress("measurements") as tick:
            warnings.simplefilter("always")
            if world is not None:
                return measured_joined(asked, world, tick)
            _warn_of_cores(asked)
            for each in said:
                print(f"warning: {each.message}", file=sys.stderr)
            return measured(asked, tick)
    except KeyboardInterrupt:
        print(f"samples so far are in {asked.samples}: the same command goes on from there", file=sys.stderr)
        raise


def _warn_of_cores(asked: Asked) -> None:
    from meshwright.engine.launch import Task, warn_of_cores

    warn_of_cores(asked.ranks, Task(target="", payload=None, backend="cpu" if asked.kind == "cpu" else "cuda"))


def _answer(values: Values, profile: Profile, out: str, name: str, samples: str) -> int:
    """The cluster file and the report; no file from a machine that was too noisy."""
    from meshwright.api.files import write_file
    from meshwright.api.views.profile import profile_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.engine.profile.clusterfile import fit_text
    from meshwright.engine.profile.fit import fit
    from meshwright.engine.profile.statistics import TOO_NOISY_RATIO
    from meshwright.report.profile import profile_report

    refused = profile.noise_ratio > TOO_NOISY_RATIO and not values["force"]
    found = None if refused else fit(profile.samples, profile.machine, name=name)
    if found is not None:
        write_file(out, fit_text(found, profile.samples, profile.machine))
    path = None if refused else out
    if values["json"]:
        print_json(profile_view(profile, found, path, samples))
    else:
        print_report(profile_report(profile, found, path, samples))
    if refused:
        template = (
            "the machine was too noisy: blocks of products took up to {ratio:.1f} times as long as the best of them ({limit:g} is "
            "bearable); samples are in {samples}: the same command measures the worst again, --force writes the file as it is"
        )
        values_of = {"ratio": profile.noise_ratio, "limit": TOO_NOISY_RATIO, "samples": samples}
        raise NoAnswerError(Message("profile.noisy", template, values_of))
    return 0

"""``profile``: micro-benchmarks of this machine or allocation, and the cluster file that says what they say."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from meshwright.api import numbers
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.request import Answer, Progress, Request, ticking
from meshwright.errors import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.engine.profile.fitted import FittedMachine
    from meshwright.engine.profile.jobs import World
    from meshwright.engine.profile.machine import Kind
    from meshwright.engine.profile.run import Asked, Profile

DEFAULT_OUT = "machine.yaml"
ENDINGS = (".yaml", ".yml")
_WHAT, _OUTPUT = "Profile", "Output"


class ProfileRequest(Request, frozen=True, kw_only=True):
    """What is measured, how long, and where it is kept."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
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
        Field(name="force", kind="flag", panel=_OUTPUT,
              help="Write the cluster file even where the machine was too noisy, or another file stands there."),
    )

    ranks: int | str | None = None
    device: str | None = None
    quick: bool = False
    minutes: float | str | None = None
    out: str | Path | None = None
    name: str | None = None
    samples: str | Path | None = None
    force: bool = False


class ProfileAnswer(Answer, frozen=True, kw_only=True):
    """Samples, and the machine that they describe."""

    profile: Profile
    found: FittedMachine | None
    """None where the machine was too noisy."""
    path: str | None
    """The cluster file; None where none was written."""
    samples: str

    @property
    def ok(self) -> bool:
        """Whether the machine was quiet enough."""
        return self.found is not None

    @property
    def refusal(self) -> Message | None:
        """That the machine was too noisy, and what to do."""
        from meshwright.engine.profile.statistics import TOO_NOISY_RATIO

        if self.ok:
            return None
        template = (
            "the machine was too noisy: blocks of products took up to {ratio:.1f} times as long as the best of them ({limit:g} is "
            "bearable); samples are in {samples}: the same command measures the worst again, --force writes the file as it is"
        )
        values = {"ratio": self.profile.noise_ratio, "limit": TOO_NOISY_RATIO, "samples": self.samples}
        return Message("profile.noisy", template, values)

    def to_json(self) -> dict[str, Any]:
        """The document of ``profile --json``."""
        from meshwright.api.views.profile import profile_view

        return profile_view(self.profile, self.found, self.path, self.samples)


@door
def profile(request: ProfileRequest, *, progress: Progress | None = None) -> ProfileAnswer | None:
    """Measure what is missing, and write the cluster file; None on ranks of an allocation beside the first.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` without torch.
    """
    from meshwright.engine.launch import require_torch

    faults = Faults()
    values = request.read(faults)
    with faults:
        require_torch()
    out, name, samples = _places(values, faults)
    from meshwright.engine.profile.joined import joined_ranks

    world = joined_ranks()
    if world is not None and values.get("ranks", world.ranks) != world.ranks:
        faults.add("profile.world", "--ranks {ranks} in a world of {world}: leave it out under torchrun", path="--ranks",
                   ranks=values["ranks"], world=world.ranks)
    faults.check()
    measured = _profile(_asked(values, samples), world, ticking(progress, "measurements"))
    return None if measured is None else _answer(values, measured, out, name, samples)


def _places(values: Values, faults: Faults) -> tuple[str, str, str]:
    """Cluster file, name and samples; what cannot be written is refused before anything is measured."""
    from meshwright.engine.profile.clusterfile import NAME
    from meshwright.outputs import obstacles

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
    faults.messages += obstacles([out], force=values["force"], fresh=True)
    faults.messages += obstacles([samples])
    faults.check()
    return out, name, samples


def _asked(values: Values, samples: str) -> Asked:
    from meshwright.engine.profile.run import Asked, default_kind, default_ranks

    kind = cast("Kind", values.get("device") or default_kind())
    return Asked(samples=Path(samples), ranks=values.get("ranks") or default_ranks(kind), kind=kind, quick=values["quick"],
                 minutes=values.get("minutes"))


def _profile(asked: Asked, world: World | None, tick: Callable[[float, float], None] | None) -> Profile | None:
    """Measured by ranks of this host, or as one rank of an allocation."""
    from meshwright.engine.profile.joined import measured_joined
    from meshwright.engine.profile.run import measured

    try:
        if world is None:
            _warn_of_cores(asked)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            return measured(asked, tick) if world is None else measured_joined(asked, world, tick)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or a scheduler that ends the job
        warnings.warn(f"samples so far are in {asked.samples}: the same command goes on from there", stacklevel=2)
        raise


def _warn_of_cores(asked: Asked) -> None:
    from meshwright.engine.launch import Task, warn_of_cores

    warn_of_cores(asked.ranks, Task(target="", payload=None, backend="cpu" if asked.kind == "cpu" else "cuda"))


def _answer(values: Values, profile: Profile, out: str, name: str, samples: str) -> ProfileAnswer:
    """The cluster file; none from a machine that was too noisy."""
    from meshwright.engine.profile.clusterfile import fit_text
    from meshwright.engine.profile.fit import fit
    from meshwright.engine.profile.statistics import TOO_NOISY_RATIO
    from meshwright.outputs import Output, write

    refused = profile.noise_ratio > TOO_NOISY_RATIO and not values["force"]
    found = None if refused else fit(profile.samples, profile.machine, name=name)
    if found is not None:
        write([Output(path=out, text=fit_text(found, profile.samples, profile.machine))], force=values["force"])
    return ProfileAnswer(profile=profile, found=found, path=None if refused else out, samples=samples)

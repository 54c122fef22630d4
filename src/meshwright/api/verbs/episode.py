"""``episode``: one step of reinforcement learning, phase by phase."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field
from meshwright.api.options import CASE, LAYOUT
from meshwright.api.pins import consistent, pin
from meshwright.api.request import Answer, ModelOnCluster, Progress, ticking
from meshwright.errors import InputError, Message, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.cases import Setup
    from meshwright.api.fields import Values
    from meshwright.domain.episode import Engine, Episode, EpisodeEstimate
    from meshwright.domain.estimate import Estimate

SAMPLED = 4096
"""Samples at even quantiles of their lengths that are packed to know how well packs fill."""
_FILES = "Files"
_STEP, _ENGINE, _TRAINER = "Step of reinforcement learning", "Engine", "Trainer"
_OF_SAMPLES = {"global_batch", "sequence", "lengths", "split_long"}


class EpisodeRequest(ModelOnCluster, frozen=True, kw_only=True):
    """A model on a cluster, what a step generates, and how often it is trained on that."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        *(field for field in CASE if field.name not in _OF_SAMPLES),
        Field(name="prompts", parse=numbers.count, metavar="N", panel=_STEP, in_file=False, help="Prompts of one step."),
        Field(name="responses", parse=numbers.count, metavar="N", panel=_STEP, in_file=False,
              help="Responses to each prompt [default: 1]."),
        Field(name="prompt_tokens", parse=numbers.sequence, metavar="TOKENS", panel=_STEP, in_file=False,
              help="Mean length of a prompt."),
        Field(name="response_tokens", parse=numbers.sequence, metavar="TOKENS", panel=_STEP, in_file=False,
              help="Mean length of a response."),
        Field(name="longest_response", parse=numbers.sequence, metavar="TOKENS", panel=_STEP, in_file=False,
              help="The longest response that is allowed [default: four times the mean]."),
        Field(name="updates", parse=numbers.count, metavar="N", panel=_STEP, in_file=False,
              help="Optimizer steps on the samples of a step, each on its share [default: 1]."),
        Field(name="epochs", parse=numbers.count, metavar="N", panel=_STEP, in_file=False,
              help="How often the samples of a step are gone through [default: 1]."),
        Field(name="no_old", kind="flag", panel=_STEP, in_file=False,
              help="The policy scores nothing: the engine's own log-probabilities are used."),
        Field(name="no_reference", kind="flag", panel=_STEP, in_file=False, help="There is no reference model: no KL term."),
        Field(name="engine_tp", parse=numbers.count, metavar="N", panel=_ENGINE, in_file=False,
              help="Devices that share a copy of the model while samples are generated [default: the fastest]."),
        Field(name="engine_memory", parse=numbers.share, metavar="RATIO", panel=_ENGINE, in_file=False,
              help="Share of a device's memory that the engine takes, as gpu_memory_utilization [default: 0.6]."),
        Field(name="engine_running", parse=numbers.count, metavar="N", panel=_ENGINE, in_file=False,
              help="The most sequences of a copy at once, as max_num_seqs [default: 256]."),
        Field(name="files", kind="many", metavar="FILE", panel=_FILES, in_file=False,
              help="Files of a framework that start such steps, repeatable: what they say need not be said; flags win."),
        Field(name="from_", metavar="NAME[@VERSION]", panel=_FILES, in_file=False,
              help="The framework that the files are for [default: the one whose keys they hold]."),
        LAYOUT,
        Field(name="pin", parse=pin, kind="many", metavar="KNOB=VALUE", panel=_TRAINER,
              help="Fix a knob of the trainer's layout, repeatable, as in plan."),
    )

    framework: str | None = None
    max_tokens: int | str | None = None
    """The most tokens of a pack of samples."""
    packs: int | str | None = None
    """Packs of an optimizer step."""
    prompts: int | str | None = None
    responses: int | str | None = None
    prompt_tokens: int | str | None = None
    response_tokens: int | str | None = None
    longest_response: int | str | None = None
    updates: int | str | None = None
    epochs: int | str | None = None
    no_old: bool = False
    no_reference: bool = False
    engine_tp: int | str | None = None
    engine_memory: float | str | None = None
    engine_running: int | str | None = None
    files: Sequence[str | Path] = ()
    from_: str | None = None
    """The framework that the files are for."""
    layout: str | None = None
    """Of the trainer; searched where none is given."""
    pin: Mapping[str, object] | Sequence[str] = ()


class EpisodeAnswer(Answer, frozen=True, kw_only=True):
    """The phases of a step, and the trainer's layout in it."""

    given: Setup
    trained: Estimate
    estimate: EpisodeEstimate | None
    """None where the engine has no room for the model and one sample."""
    engine: Engine
    limits: tuple[str, ...] = ()
    """Why the framework could not run the layout."""

    @property
    def ok(self) -> bool:
        """Whether the engine has room, every phase has memory, and the trainer's layout fits and is run."""
        return self.estimate is not None and not self.estimate.over and self.trained.fits and not self.limits

    def to_json(self) -> dict[str, Any]:
        """The document of ``episode --json``."""
        from meshwright.api.views.episode import episode_view

        view = episode_view(self.estimate, self.trained, self.given.request)
        return {**view, "fits": self.ok, "framework_limits": list(self.limits)}


@door
def episode(request: EpisodeRequest, *, progress: Progress | None = None) -> EpisodeAnswer:
    """Predict generation, log-probabilities and training of one step, each with its time and memory.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where no layout of the trainer fits.
    """
    try:
        return _predicted(request, progress)
    except (InputError, NoAnswerError) as error:
        raise type(error)(map(_own_words, error.messages)) from None


_WORDS = {
    "plan.positions": ("--longest-response", ""),
    "plan.batch": ("--prompts", "no layout on {devices} devices shares {batch} packs of samples evenly; nearest that work: {near}"),
}
"""What a search says of a batch that was counted here -> the option that it hangs on, and its words where they are others."""


def _own_words(message: Message) -> Message:
    """A message of the search as this verb's options have it."""
    option, words = _WORDS.get(message.id, (message.path, ""))
    return replace(message, path=option, template=words or message.template)


def _predicted(request: EpisodeRequest, progress: Progress | None) -> EpisodeAnswer:
    from meshwright.estimate.episode import episode_estimate

    faults = Faults()
    values = request.read(faults)
    if values["files"]:
        from meshwright.api.episode_files import said

        values = {**values, **said(values, faults), **{name: value for name, value in values.items() if value not in (False, [])}}
    asked, engine = _asked(values, faults)
    given = _case(values, asked, faults)
    given, trained, limits = _trained(given, values, faults, progress)
    assert asked is not None, "faults.check() raises where something is missing"
    found = episode_estimate(given.case, trained, asked, engine, choose="engine_tp" not in values)
    return EpisodeAnswer(given=given, trained=trained, estimate=found, engine=engine, limits=limits)


def _asked(values: Values, faults: Faults) -> tuple[Episode | None, Engine]:
    """What a step does, and on which engine."""
    from meshwright.catalog.engines import engine
    from meshwright.domain.episode import Episode, Responses

    own = engine()
    own = replace(
        own, tensor_parallel=values.get("engine_tp", 1), memory_ratio=values.get("engine_memory", own.memory_ratio),
        running=values.get("engine_running", own.running),
    )
    needed = ("prompts", "prompt_tokens", "response_tokens")
    missing = [f"--{name.replace('_', '-')}" for name in needed if name not in values and name not in faults.failed]
    if missing:
        faults.add("episode.missing", "{names} missing: what a step generates",
                   names=" and ".join(missing) + (" is" if len(missing) == 1 else " are"))
    if missing or {*needed, "longest_response", "responses", "updates", "epochs"} & faults.failed:
        return None, own
    mean = values["response_tokens"]
    longest, updates = values.get("longest_response", 4 * mean), values.get("updates", 1)
    samples = values["prompts"] * values.get("responses", 1)
    if longest < mean:
        faults.add("episode.longest", "{longest:,} is shorter than the mean response of {mean:,} tokens", path="--longest-response",
                   longest=longest, mean=mean)
    if samples % updates:
        faults.add("episode.updates", "{updates:,} optimizer steps do not share {samples:,} samples evenly; {divisor} do",
                   path="--updates", updates=updates, samples=samples,
                   divisor=max(count for count in range(1, min(updates, samples) + 1) if samples % count == 0))
    if samples > numbers.MOST["global_batch"]:
        faults.add("episode.samples", "{prompts:,} prompts x {responses:,} are {samples:,} samples, more than {limit:,}",
                   path="--responses", prompts=values["prompts"], responses=values.get("responses", 1), samples=samples,
                   limit=numbers.MOST["global_batch"])
    if longest < mean or samples % updates or samples > numbers.MOST["global_batch"]:
        return None, own
    return Episode(
        prompts=values["prompts"], responses=values.get("responses", 1), prompt_tokens=values["prompt_tokens"],
        response=Responses(mean_tokens=float(mean), longest_tokens=longest), updates=updates,
        epochs=values.get("epochs", 1), old=not values["no_old"],
        reference=not values["no_reference"],
    ), own


def _case(values: Values, asked: Episode | None, faults: Faults) -> Setup:
    """The trainer's case: samples of the lengths that are generated, in packs."""
    import numpy as np

    from meshwright.api.cases import drafted
    from meshwright.api.episode_files import SAMPLES
    from meshwright.api.packs import ALIGNED, Samples
    from meshwright.estimate.episode import sizes

    named = {field.name for field in CASE}
    case: dict[str, Any] = {name: value for name, value in values.items() if name in named}
    if asked is None:
        faults.failed |= {"global_batch", "sequence", "lengths"}
    else:
        lengths = np.array(asked.lengths(min(SAMPLED, asked.samples)), dtype=np.int64)
        longest, together = (
            math.ceil(tokens / ALIGNED) * ALIGNED
            for tokens in (asked.prompt_tokens + asked.response.longest_tokens, values.get(SAMPLES, 1) * lengths.mean())
        )
        case["samples"] = Samples(lengths=lengths, documents=len(lengths), longest_tokens=longest)
        case["global_batch"] = asked.samples // asked.updates
        if "layout" in values:
            case.setdefault("max_tokens", max(longest, together))
        case["lengths"] = ""
    draft = drafted(case, faults)
    faults.check()
    assert draft.setup is not None, "faults.check() raises where there is no case"
    if "engine_tp" in values and values["engine_tp"] not in (able := sizes(draft.setup.case)):
        faults.add("episode.engine", "a copy on {tp:,} devices shares no nodes evenly; {able} do", path="--engine-tp",
                   tp=values["engine_tp"], able=", ".join(map(str, able)))
    faults.check()
    return draft.setup


def _shared(given: Setup, label: str) -> Setup:
    """The case with as many packs more as replicas of a layout need to have as many each, interleaved ones in groups of stages."""
    if "packs" in given.request:
        return given
    batch = given.case.batch
    try:
        layout = given.layout(label)
    except InputError as error:
        more = next((message.values["more"] for message in error.messages if message.id == "label.packs"), None)
        if not isinstance(more, int):
            raise
        given = given.packed(batch.sequence_tokens, more)
        layout = given.layout(label)
    unit = layout.data_parallel * layout.microbatch_sequences * (layout.pipeline_parallel if layout.virtual_stages > 1 else 1)
    packs = -(-batch.global_batch_sequences // unit) * unit
    return given if packs == given.case.batch.global_batch_sequences else given.packed(batch.sequence_tokens, packs)


def _trained(
    given: Setup, values: Values, faults: Faults, progress: Progress | None
) -> tuple[Setup, Estimate, tuple[str, ...]]:
    """The trainer's layout: the one that is asked for, or the best under the best cap of packs."""
    from meshwright.api.legality import check_layout
    from meshwright.api.packed_search import any_packs, best_packs
    from meshwright.api.searching import searched_by, trains
    from meshwright.estimate import estimate
    from meshwright.search.result import SearchOptions

    with faults.at("framework"):
        if "framework" in values:
            trains(given)

    if "layout" in values:
        with faults.at("layout"):
            given = _shared(given, values["layout"])
            layout = given.layout(values["layout"])
            limits = check_layout(given, layout, framework_asked="framework" in values)
        faults.check()
        return given, estimate(given.case, layout), tuple(limits)
    pins = consistent(values["pin"], faults)
    faults.check()
    options = SearchOptions(top=1, pins=pins)
    tick = ticking(progress, "layouts")
    searched = partial(searched_by, options=options, tick=tick, asked="framework" in values, alone=True)
    several = any_packs(given, {**values, "global_batch": given.request["global_batch"]})
    given, result, _ = best_packs(given, searched) if several else (given, searched(given), ())
    if not result.plans:
        words = "no layout of the trainer fits; `meshwright plan` with the same model and cluster says what would"
        raise NoAnswerError(Message("episode.nothing", words, {}))
    return given, result.plans[0].estimate, ()

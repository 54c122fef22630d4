"""slime's flags as a layout: what it sets by itself is put beside Megatron-LM's flags, which are read as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN, Setting
from meshwright.errors import Message
from meshwright.frameworks.compose import Values
from meshwright.frameworks.megatron.flags import surface as megatron_surface
from meshwright.frameworks.megatron.reading import interpret as interpret_flags
from meshwright.frameworks.settings import Given, Reading, Said
from meshwright.frameworks.slime.batch import Step, count, microbatch_of, step_of
from meshwright.frameworks.slime.flags import BATCH, CAP, CORE, DYNAMIC, MICRO, NAME, own_id, surface
from meshwright.frameworks.slime.sources import lost_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.documents.source import Source
    from meshwright.domain.model import Model

_BATCH = "global batch size ({batch}) is not divisible by micro batch size ({microbatch}) times data parallel size ({dp})"
_SEQUENCE = "--seq-length"
PLACEHOLDER = 4096
"""Tokens that stand there for a length where nothing is said: samples have their own."""
DISPATCHER = "--moe-token-dispatcher-type"


def interpret(source: Source, given: Given, release: str) -> Reading:
    """What a run does, with what Megatron-LM makes of it."""
    values = Values(source=source, surface=surface(), release=release)
    step = step_of(values, given.num_devices or source.devices)
    packs = given.packs if step.dynamic else None
    microbatch = microbatch_of(step, packs) if step.dynamic else count(values, MICRO, 1)
    samples = packs.global_batch_sequences if packs else step.samples
    below = interpret_flags(as_flags(values, given.model, {MICRO: microbatch or 1, BATCH: samples}), given, CORE)
    said = Said(
        devices=step.world, global_batch_sequences=step.samples, sequence_tokens=step.longest, precision=below.said.precision,
        gradient_dtype=below.said.gradient_dtype, optimizer=below.said.optimizer,
        figures=below.said.figures if values.has("--hidden-size") else {},
        task="sft" if values.text("--loss-type") == "sft_loss" else None, launch=below.said.launch,
    )
    messages = (*values.messages, *map(_own_words, below.messages), *_notes(values, step, microbatch, packed=packs is not None))
    knobs = surface().knobs()
    failed = any(key in knobs for key in values.failed)
    return Reading(framework=NAME, version=release, source=source, said=said, layout=None if failed else below.layout,
                   messages=messages)


def asked(reading: Reading) -> Step:
    """The step of a reading, for what asks about it again."""
    return step_of(values_of(reading), reading.said.devices)


def values_of(reading: Reading) -> Values:
    """The flags of a reading by their types."""
    return Values(source=reading.source, surface=surface(), release=reading.version)


def as_flags(values: Values, model: Model | None, counts: dict[str, int | None]) -> Source:
    """Megatron-LM's flags among those of a launch, as slime hands them on: it sets some by itself.

    A figure of the model that only the run knows decides no layout, and is left to whoever asks for the model.
    """
    core, knobs = megatron_surface(), megatron_surface().knobs()
    kept = {
        key: setting for key, setting in values.source.settings.items()
        if core.find(key, CORE) and key not in counts and (setting.value is not UNKNOWN or key in knobs)
    }
    place = next(iter(values.source.settings.values()), None)
    for key, value in {**_forced(values, model), **{key: each for key, each in counts.items() if each is not None}}.items():
        there = values.source.settings.get(key)
        kept[key] = replace(there, value=value) if there is not None else Setting(
            key=key, value=value, file=place.file if place else "")
    return replace(values.source, remarks=(), settings=kept)


def _forced(values: Values, model: Model | None) -> dict[str, object]:
    """What slime sets whatever is said."""
    found: dict[str, object] = {"--use-distributed-optimizer": True, _SEQUENCE: values.int(_SEQUENCE) or PLACEHOLDER}
    if not values.bool("--fp16"):
        found["--bf16"] = True
    if values.text(DISPATCHER, "allgather") == "allgather":
        found[DISPATCHER] = "alltoall"
    if model is not None and model.experts is not None and not values.has("--num-experts"):
        found["--num-experts"] = model.experts.num_experts  # of a file that was not given
    return found


def _own_words(message: Message) -> Message:
    """What Megatron-LM's reading says, as slime comes to it."""
    if message.id == "import.microbatches":
        return Message(f"{NAME}.batch", _BATCH, message.values, message.path)
    return Message(own_id(message.id), message.template, message.values, message.path)


def _notes(values: Values, step: Step, microbatch: int | None, *, packed: bool) -> Iterator[Message]:
    """Where the reading stands for something that the flags do not say exactly."""
    if arrays := lost_arrays(values.source):
        yield Message(f"{NAME}.arrays", "flags in {arrays} are only known when the job runs: give the file that the script reads "
                      "them from", {"arrays": ", ".join(f"${name}" for name in arrays)})
    if values.has("--megatron-config-path"):
        yield Message(f"{NAME}.roles", "overrides of --megatron-config-path for the actor are not read", {},
                      values.source.settings["--megatron-config-path"].place)
    if step.dynamic and step.limit and microbatch is None:
        yield Message(f"{NAME}.packed-length", "micro-batches are packed up to {limit} tokens, and how long a sample is is not "
                      "said: read as one sample at a time", {"limit": step.limit}, values.source.settings[DYNAMIC].place)
    elif step.dynamic and step.limit and microbatch and not packed and microbatch * (step.longest or 0) != step.limit:
        yield Message(f"{NAME}.packed", "micro-batches are packed up to {limit} tokens ({key} x {shards}), read as {size} whole "
                      "samples of {sequence}",
                      {"limit": step.limit, "key": CAP, "shards": step.cp, "size": microbatch, "sequence": step.longest},
                      values.source.settings[DYNAMIC].place)

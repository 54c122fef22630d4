"""What verl's files say beside the layout of an engine: devices, the batch, the longest sample, micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.compose import Values, world_of
from meshwright.frameworks.settings import Given, Reading, Said
from meshwright.frameworks.verl.batch import sequences_under
from meshwright.frameworks.verl.keys import DP, MCORE, ROLLOUT, Places
from meshwright.frameworks.verl.sources import engine_of, is_sft, lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.documents.source import Source
    from meshwright.domain.layout import Layout
    from meshwright.domain.training import Batch
    from meshwright.frameworks.surface import Surface

OTHER = {DP: "verl-fsdp", MCORE: "verl-megatron"}
"""Back end -> the framework that reads it."""
DEFAULTS = {
    "data.max_prompt_length": 512, "data.max_response_length": 512, "data.max_length": 1024, f"{ROLLOUT}.n": 1,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 256, "data.train_batch_size": 256, "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 16384, "data.max_token_len_per_gpu": 8192,
    "data.micro_batch_size_per_gpu": 4,
}
"""What verl's YAML has where files are silent."""


class Step(Struct, frozen=True):
    """One optimizer step as files have it."""

    places: Places
    world: int | None
    samples: int | None
    sequence_tokens: int | None
    packs: Batch | None = None
    """What the samples are packed into, where files pack and that is known."""

    @property
    def sequences(self) -> int | None:
        """What a micro-batch is counted in: packs, or samples."""
        return self.packs.global_batch_sequences if self.packs else self.samples


Build = "Callable[[Values, Step, Given], Layout | None]"


def number(values: Values, key: str) -> int | None:
    """A whole number of at least 1; verl's default where it is absent, None where it is wrong or only known to the run."""
    setting = values.source.settings.get(key)
    if setting is None or setting.value is None:
        return DEFAULTS[key]
    if setting.value is UNKNOWN:
        values.get(key)
        return None
    found = values.int(key)
    if found is None or found < 1:
        values.note(key, "setting.degree", "{key} is {value}: at least 1 is expected", key=key, value=setting.value)
        return None
    return found


def interpret(
    source: Source, given: Given, release: str, *, name: str, engine: str, surface: Surface, section: str,
    build: Callable[[Values, Step, Given], Layout | None],
) -> Reading:
    """Files as one of the back ends runs them; those of another engine are told where they belong."""
    values = Values(source=source, surface=surface, release=release, strict=True)
    tuning, chosen = is_sft(source), engine_of(source)
    places = Places("" if tuning else section)
    packs = given.packs if source.value(places.dynamic, tuning) is True else None
    step = Step(places, _world(values, given, tuning), _samples(values, given, tuning), _sequence(values, given, tuning), packs)
    layout = None
    if arrays := lost(source):
        values.refuse(
            "verl.arguments", "the words in {arrays} are only known when the job runs, and the policy's keys are among them: give "
            'what the script decides by as --arguments "NAME=value"', arrays=", ".join(f"${name}" for name in arrays),
        )
    elif chosen and chosen != engine:
        key = "engine" if tuning else "model_engine"
        values.refuse(
            "verl.engine", "the files choose the engine {engine}{instead}", engine=chosen,
            instead=f": read them with --from {OTHER[chosen]}" if chosen in OTHER else f"; {key} {engine} is read here",
        )
    else:
        layout = build(values, step, given)
    knobs = surface.knobs()
    adapters = values.source.value(f"{places.model}.lora_rank") or values.source.value(f"{places.model}.lora.rank")
    said = Said(
        devices=step.world, global_batch_sequences=step.samples, sequence_tokens=step.sequence_tokens, precision="bf16",
        optimizer="adamw", task="lora" if isinstance(adapters, int) and adapters > 0 else "sft" if tuning else None,
    )
    return Reading(
        framework=name, version=release, source=source, said=said,
        layout=None if any(key in knobs for key in values.failed) else layout, messages=tuple(values.messages),
    )


def _world(values: Values, given: Given, tuning: bool) -> int | None:
    """GPUs of the trainer: of RL by its own keys, of SFT as torchrun starts them; as given where a script asks the machine."""
    if tuning:
        return world_of(values, given)
    keys = ("trainer.nnodes", "trainer.n_gpus_per_node")
    if any(values.source.value(key) is UNKNOWN for key in keys):
        return world_of(values, given)
    if given.num_devices and not any(values.has(key) for key in keys):
        return given.num_devices
    nodes, devices = (number(values, key) for key in keys)
    return nodes * devices if nodes and devices else None


def _samples(values: Values, given: Given, tuning: bool) -> int | None:
    """Samples of an optimizer step: of RL a mini-batch of prompts times their responses."""
    if tuning:
        return number(values, "data.train_batch_size")
    mini, responses = number(values, "actor_rollout_ref.actor.ppo_mini_batch_size"), number(values, f"{ROLLOUT}.n")
    return mini * responses if mini and responses else given.global_batch_sequences


def _sequence(values: Values, given: Given, tuning: bool) -> int | None:
    """Tokens of the longest sample."""
    names = ("data.max_length",) if tuning else ("data.max_prompt_length", "data.max_response_length")
    counts = [count for name in names if (count := number(values, name))]
    return sum(counts) if len(counts) == len(names) else given.sequence_tokens


def microbatch_of(values: Values, step: Step, dp: int | None, shards: int) -> int:
    """Sequences of a micro-batch: as said, or what the cap on tokens stands for."""
    places, tuning = step.places, not step.places.section
    if not values.bool(places.dynamic, tuning):
        return _fixed(values, step)
    cap, count = number(values, places.cap), step.sequences
    tokens = step.packs.sequence_tokens if step.packs else step.sequence_tokens
    if not (cap and tokens and count and dp) or count % dp:
        return 1
    size = sequences_under(cap, shards, tokens, count // dp)
    if size * tokens != cap * shards:
        values.refuse(
            "verl.packed", "micro-batches are packed towards {limit} tokens ({key} x {shards}), read as {size} whole sequences of "
            "{sequence}", limit=cap * shards, key=places.cap, shards=shards, size=size, sequence=tokens,
        )
    return size


def _fixed(values: Values, step: Step) -> int:
    """A count of samples; the deprecated key of RL counts those of all GPUs."""
    key = step.places.microbatch
    if values.has(key) or not step.places.section:
        return number(values, key) or 1 if key in DEFAULTS else values.degree(key)
    whole = values.int("actor_rollout_ref.actor.ppo_micro_batch_size")
    if whole and step.world and whole >= step.world:
        return whole // step.world
    if not whole:
        values.refuse("verl.micro-batch", "[actor] Please set at least one of 'actor.ppo_micro_batch_size' or "
                      "'actor.ppo_micro_batch_size_per_gpu' if use_dynamic_bsz is not enabled.")
    return 1

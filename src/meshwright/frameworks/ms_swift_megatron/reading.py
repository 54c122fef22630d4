"""ms-swift's settings for Megatron as a layout: read as the flags of Megatron-LM that say the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.documents.source import Setting
from meshwright.domain.kernels import by_default_of
from meshwright.errors import Message
from meshwright.frameworks.adapters import adapters_of
from meshwright.frameworks.bridge.adapters import PROJECTIONS
from meshwright.frameworks.compose import Values
from meshwright.frameworks.megatron.reading import interpret as interpret_flags
from meshwright.frameworks.ms_swift_megatron.names import (
    CORE,
    DEFAULTS,
    FLAGS,
    NAME,
    OWN_ATTENTION,
    RELEASES,
    SWITCHED_OFF,
    TITLE,
    renamed,
)
from meshwright.frameworks.ms_swift_megatron.sources import names_configuration, verb_of
from meshwright.frameworks.settings import Given, Reading, Said
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.documents.source import Source
    from meshwright.domain.training import Lora, Task

_CHOICE = "a chosen and a rejected answer"
RANK = 8
"""``lora_rank`` where it is not said."""
PAIRS = {"dpo": _CHOICE, "rm": _CHOICE, "kto": "an answer and one of another prompt"}
"""``rlhf_type`` -> what a sample stands for, which runs through the model as two sequences."""
_BATCH = "global batch size ({batch}) is not divisible by micro batch size ({microbatch}) times data parallel size ({dp})."


@cache
def surface() -> Surface:
    """Every field of ms-swift's arguments."""
    return load_surface(__package__ or "", TITLE, RELEASES)


def interpret(source: Source, given: Given, release: str) -> Reading:
    """What a run does, with what Megatron-Core makes of it."""
    world = given.num_devices or source.devices
    values = Values(source=source, surface=surface(), release=release)
    missing = names_configuration(source) or _by_ray(values)
    if missing is not None:
        return Reading(framework=NAME, version=release, source=source, said=Said(devices=world), messages=(missing,))
    below = interpret_flags(as_flags(values), given, CORE)
    sequence = sequence_tokens(values)
    said = Said(
        devices=world, global_batch_sequences=below.said.global_batch_sequences, sequence_tokens=sequence,
        precision=below.said.precision, gradient_dtype=_gradients(values), optimizer=below.said.optimizer, task=task_of(values),
        launch=below.said.launch,
    )
    layout = below.layout
    if layout is not None:
        own = by_default_of(given.model, OWN_ATTENTION)
        layout = replace(layout, attention=None if layout.attention == own else layout.attention)
    broken = bool(values.messages)
    said = replace(said, lora=_lora(values))  # adapters that nobody knows change no layout
    messages = (*values.messages, *map(_own_words, below.messages), *_pairs(values))
    return Reading(
        framework=NAME, version=release, source=source, said=said, layout=None if broken else layout, messages=messages,
    )


def as_flags(values: Values) -> Source:
    """The settings that decide a layout as flags of Megatron-LM, defaults among them; a wrong value is noted."""
    return replace(values.source, remarks=(), settings={setting.key: setting for setting in _flags(values)})


def _flags(values: Values) -> Iterator[Setting]:
    place = next(iter(values.source.settings.values()), None)
    for name, flag in FLAGS.items():
        value = values.get(name)
        value = DEFAULTS.get(name) if value is None else value
        if name == "virtual_pipeline_model_parallel_size" and value == 1:
            value = None
        if name == "attention_backend" and isinstance(value, str):
            value = value.partition("_")[0]
        if name == "use_distributed_optimizer":
            value = bool(value) and "muon" not in values.text("optimizer")  # switched off in silence
        if value is None or value is False or (name == "recompute_granularity" and value == "none"):
            continue
        if name == "recompute_modules" and values.text("recompute_granularity", "selective") != "selective":
            continue
        yield _as(values.source.settings.get(name), place, flag, value)
    for name, flag in SWITCHED_OFF.items():
        if values.bool(name, True) is False:
            yield _as(values.source.settings.get(name), place, flag, True)
    if any((values.int(name) or 1) > 1 for name in ("expert_model_parallel_size", "expert_tensor_parallel_size")):
        yield _as(None, place, "--num-experts", 1)  # that there are any: how many is the model's
    if values.bool("use_megatron_fsdp"):  # a rule of Megatron-LM's own launches
        yield _as(None, place, "--ckpt-format", "fsdp_dtensor")


def _as(there: Setting | None, place: Setting | None, flag: str, value: object) -> Setting:
    """A value under a flag, where it stands or, where it is a default, in the first file."""
    if there is not None:
        return replace(there, key=flag, value=value)
    return Setting(key=flag, value=value, file=place.file if place is not None else "")


def sequence_tokens(values: Values) -> int | None:
    """Tokens of a sequence: of a pack, of a sample, or in reinforcement learning of a prompt and its completion."""
    longest = values.int("max_length")
    if values.bool("packing"):
        return values.int("packing_length") or longest
    if is_rl(values) and longest is not None:
        return longest + (values.int("max_completion_length") or 512)
    return longest


def is_rl(values: Values) -> bool:
    """Whether completions are sampled."""
    return verb_of(values.source) == "rlhf" and values.text("rlhf_type", "dpo") in {"grpo", "gkd"}


def task_of(values: Values) -> Task | None:
    """What is trained; of ``rlhf`` only adapters are known."""
    if values.text("tuner_type", "full").startswith("lora") or values.has("adapters"):
        return "lora"
    return {"pt": "pretrain", "sft": "sft"}.get(verb_of(values.source))  # type: ignore[return-value]


def _lora(values: Values) -> Lora | None:
    """Rank and places of the adapters."""
    if task_of(values) != "lora":
        return None
    key = "target_modules"
    return adapters_of(values, key, values.degree("lora_rank", RANK), values.words(key), PROJECTIONS)


def _gradients(values: Values) -> str | None:
    """The type in which gradients are summed."""
    return values.text("main_grads_dtype", "fp32") if not values.bool("fp16") else None


def _by_ray(values: Values) -> Message | None:
    """Settings of the Ray variant, which stand in sections for trainer and rollout."""
    if not values.bool("use_ray"):
        return None
    setting = values.source.settings["use_ray"]
    return Message(f"{NAME}.ray", "with use_ray the settings stand in sections for each role, which are not read here", {},
                   setting.place)


def _pairs(values: Values) -> Iterator[Message]:
    """That a sample of preference learning is two sequences."""
    kind = values.text("rlhf_type", "dpo")
    if verb_of(values.source) == "rlhf" and kind in PAIRS:
        yield Message(f"{NAME}.pairs", "a sample of {kind} is {what}, which run through the model together: it is counted as one "
                      "sequence here", {"kind": kind, "what": PAIRS[kind]})


def _own_words(message: Message) -> Message:
    """What Megatron-LM's reading says, in ms-swift's words."""
    if message.id == "import.microbatches":
        return Message(f"{NAME}.batch", _BATCH, message.values, message.path)
    return renamed(message)

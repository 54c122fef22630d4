"""LLaMA-Factory's YAML for its Megatron-Bridge back end as a layout: read as the fields of Bridge that it sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import Setting
from meshwright.domain.training import Lora
from meshwright.errors import Message
from meshwright.frameworks.bridge.reading import interpret as interpret_fields
from meshwright.frameworks.compose import Values
from meshwright.frameworks.llama_factory_hf.reading import RANK
from meshwright.frameworks.llama_factory_hf.sources import names_configuration
from meshwright.frameworks.llama_factory_megatron.sources import DEFAULTS, as_bridge
from meshwright.frameworks.llama_factory_megatron.writing import BELOW
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.domain.training import Task

NAME = "llama-factory-megatron"
DEGREES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size")


def interpret(source: Source, given: Given, release: str) -> Reading:
    """What a run does; the global batch follows from micro-batch, accumulation and world, with ep a factor of the world."""
    from meshwright.frameworks.llama_factory_megatron.surfaces import surface

    world = given.num_devices or source.devices
    missing = names_configuration(source)
    if missing is not None:
        return Reading(framework=NAME, version=release, source=source, said=Said(devices=world), messages=(missing,))
    values = Values(source=source, surface=surface(), release=release)
    fields, batch = as_bridge(source), global_batch(values, world)
    if batch is not None:
        fields = replace(fields, settings={**fields.settings, "train.global_batch_size": Setting(
            key="train.global_batch_size", value=batch, file=_file_of(source))})
    reading = interpret_fields(fields, given, BELOW)
    own = _uneven(values, batch, reading)
    known = {(each.id, each.path) for each in values.messages}  # what an argument is at fault for, its field is, too
    told = (each for each in reading.messages if (each.id, each.path) not in known)
    messages = (*values.messages, *own, *(each for each in told if not (own and each.id == "import.microbatches")))
    task = task_of(values)
    lora = Lora(rank=values.degree("lora_rank", RANK)) if task == "lora" else None  # whatever lora_target says
    said = replace(reading.said, task=task, sequence_tokens=_tokens(values), lora=lora)
    return replace(
        reading, framework=NAME, version=release, source=source, said=said, messages=messages,
        layout=None if values.messages or own else reading.layout,
    )


def _file_of(source: Source) -> str:
    """The file that holds the arguments."""
    return next((setting.file for setting in source.settings.values()), "")


def count(values: Values, key: str) -> int:
    """A whole number of at least 1, with LLaMA-Factory's default."""
    default = DEFAULTS[key]
    assert isinstance(default, int), f"{key} is no number"
    return values.degree(key, default)


def global_batch(values: Values, world: int | None) -> int | None:
    """Sequences of a step as ``_compute_train_schedule`` has them: floor division by all four degrees, at least a micro-batch."""
    if world is None:
        return None
    mb, steps = count(values, "per_device_train_batch_size"), count(values, "gradient_accumulation_steps")
    size = 1
    for key in DEGREES:
        size *= count(values, key)
    return max(mb * steps * world // size, mb)


def _uneven(values: Values, batch: int | None, reading: Reading) -> tuple[Message, ...]:
    """That Megatron, which counts replicas without ep, cannot divide the batch."""
    world, ep = reading.said.devices, count(values, "expert_model_parallel_size")
    mb = count(values, "per_device_train_batch_size")
    inner = count(values, DEGREES[0]) * count(values, DEGREES[1]) * count(values, DEGREES[2])
    if batch is None or world is None or ep == 1 or world % (inner * ep) or batch % (mb * (world // inner)) == 0:
        return ()
    words = "the global batch {batch} (micro-batch x accumulation x world // (tp pp cp ep)) is no multiple of micro-batch {mb} x " \
        "data-parallel {dp}, which Megatron counts without ep: accumulation must be a multiple of {ep}"
    setting = values.source.settings.get("gradient_accumulation_steps")
    return (Message(f"{NAME}.expert-batch", words, {"batch": batch, "mb": mb, "dp": world // inner, "ep": ep},
                    setting.place if setting else ""),)


def _tokens(values: Values) -> int:
    """Tokens of a sequence: ``packing``, which is of the other back end, takes one off."""
    packs = values.bool("packing") or values.bool("neat_packing")
    return count(values, "cutoff_len") - packs


def task_of(values: Values) -> Task | None:
    """What is trained: stage ``pt`` trains all weights, whatever ``finetuning_type`` says."""
    stage = values.text("stage", "sft")
    if stage == "pt":
        return "pretrain"
    return ("lora" if values.text("finetuning_type", "lora") == "lora" else "sft") if stage == "sft" else None

"""picotron's JSON as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.source import Source
from meshwright.domain.layout import Layout, Overlap
from meshwright.frameworks.compose import Values
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import Schedule

SCHEDULES: dict[str, Schedule] = {"1f1b": "1f1b", "afab": "gpipe"}
_FIGURES = {
    "model.num_hidden_layers": "layers", "model.num_attention_heads": "heads", "model.num_key_value_heads": "key_value_heads",
}


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A configuration as picotron understands it: all degrees stand there, and their product is the world."""
    from meshwright.frameworks.picotron import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    tp, cp, pp, dp = (values.degree(f"distributed.{name}_size") for name in ("tp", "cp", "pp", "dp"))
    mb = values.degree("training.micro_batch_size")
    microbatches = values.degree("training.gradient_accumulation_steps")
    world = tp * cp * pp * dp
    devices = given.num_devices or source.devices
    if devices is not None and devices != world:
        values.refuse(
            "picotron.world", "world_size must be equal to tp_size * pp_size * dp_size * cp_size: {devices} is not {world}",
            devices=devices, world=world,
        )
    engine = values.text("distributed.pp_engine", "1f1b")
    figures = {name: values.int(key) for key, name in _FIGURES.items() if values.int(key) is not None}
    layout = Layout(
        tensor_parallel=tp, context_parallel=cp, pipeline_parallel=pp, data_parallel=dp, microbatch_sequences=mb,
        num_microbatches=microbatches, schedule=SCHEDULES.get(engine, "1f1b"),
        overlap=Overlap(gradient_reduce=True, parameter_gather=False, tensor=False, point_to_point=False, expert=False),
    )
    said = Said(
        devices=world, global_batch_sequences=dp * mb * microbatches, sequence_tokens=values.int("training.seq_length"),
        precision="bf16", optimizer="adamw", task="pretrain", figures=figures,
    )
    return Reading(
        framework="picotron", version=release, source=source, said=said, layout=None if values.messages else layout,
        messages=tuple(values.messages),
    )

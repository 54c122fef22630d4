"""picotron's JSON as a layout."""

from __future__ import annotations

from meshwright.documents.source import Source
from meshwright.domain.layout import Layout, Overlap
from meshwright.frameworks.compose import Values
from meshwright.frameworks.keys import told
from meshwright.frameworks.picotron.writing import KEYS
from meshwright.frameworks.settings import Given, Reading, Said

_DEGREES = (
    "tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "microbatch_sequences", "num_microbatches",
)
_FIGURES = {
    "model.num_hidden_layers": "layers", "model.num_attention_heads": "heads", "model.num_key_value_heads": "key_value_heads",
}


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A configuration as picotron understands it: all degrees stand there, and their product is the world."""
    from meshwright.frameworks.picotron import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    degrees = {knob: told(KEYS, values, knob) for knob in _DEGREES}
    world = Layout(**degrees).world
    devices = given.num_devices or source.devices
    if devices is not None and devices != world:
        values.refuse(
            "picotron.world", "world_size must be equal to tp_size * pp_size * dp_size * cp_size: {devices} is not {world}",
            devices=devices, world=world,
        )
    schedule = told(KEYS, values, "schedule")
    figures = {name: values.int(key) for key, name in _FIGURES.items() if values.int(key) is not None}
    layout = Layout(
        **degrees, schedule=schedule,
        overlap=Overlap(gradient_reduce=True, parameter_gather=False, tensor=False, point_to_point=False, expert=False),
    )
    batch = layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches
    said = Said(
        devices=world, global_batch_sequences=batch, sequence_tokens=values.int("training.seq_length"),
        precision="bf16", optimizer="adamw", task="pretrain", figures=figures,
    )
    return Reading(
        framework="picotron", version=release, source=source, said=said, layout=None if values.messages else layout,
        messages=tuple(values.messages),
    )

"""The sections of verl's FSDP engine as a layout."""

from __future__ import annotations

from meshwright.domain.layout import Full, Layout, NoRecompute
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of
from meshwright.frameworks.settings import Given
from meshwright.frameworks.verl.keys import ACTOR
from meshwright.frameworks.verl.reading import Step, microbatch_of
from meshwright.frameworks.verl_fsdp.deciding import OVERLAP


def build(values: Values, step: Step, given: Given) -> Layout | None:
    """Ulysses is a key, data parallelism what is left of the GPUs; states are split over ``fsdp_size`` of them."""
    engine = step.places.engine
    deprecated = f"{ACTOR}.ulysses_sequence_parallel_size"
    ranks = values.degree(deprecated) if step.places.section and values.has(deprecated) else 1
    ulysses = ranks if ranks > 1 else values.degree(f"{engine}.ulysses_sequence_parallel_size")
    dp = data_parallel_of(values, step.world, ulysses)
    size = microbatch_of(values, step, dp, ulysses)
    count = microbatches_of(values, step.sequences, size, dp)
    if dp is None or count is None or step.world is None:
        return None
    asked = values.int(f"{engine}.fsdp_size", -1)
    group = step.world if asked is None or asked < 0 or asked >= step.world else max(asked, 1)
    if step.world % group:
        values.note(f"{engine}.fsdp_size", "verl.fsdp-size", "fsdp_size {size} does not divide the {world} GPUs: the mesh is "
                    "rounded down and some have no place in it", size=group, world=step.world)
        return None
    whole = values.bool(f"{engine}.reshard_after_forward", True)
    checkpointing = values.bool(f"{step.places.model}.enable_gradient_checkpointing", True)
    return Layout(
        context_parallel=ulysses, context_kind="ulysses" if ulysses > 1 else "ring", data_parallel=dp, microbatch_sequences=size,
        num_microbatches=count, recompute=Full() if checkpointing else NoRecompute(), overlap=OVERLAP, optimizer_shards=group,
        gradient_shards=group, parameter_shards=group if whole else 1,
        offload=("optimizer",) if values.bool(f"{engine}.offload_policy") else (),
    )

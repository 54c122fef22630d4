"""What NeMo-RL's files say beside the layout of a back end: the trainer's devices, the batch, the longest sample, micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.compose import Values
from meshwright.frameworks.nemo_rl.keys import (
    BATCH,
    COLOCATED,
    DYNAMIC,
    GENERATING,
    LENGTH,
    MEGATRON,
    MICRO,
    NODES,
    OTHER,
    PACKING,
    PAIRED,
    PER_NODE,
)
from meshwright.frameworks.nemo_rl.sources import algorithm_of, enabled, missing_bases
from meshwright.frameworks.settings import Given, Reading, Said
from meshwright.frameworks.verl.batch import sequences_under

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.documents.source import Source
    from meshwright.domain.layout import Layout
    from meshwright.domain.training import Batch, Task
    from meshwright.frameworks.surface import Surface

_OTHERS = ("on_policy_distillation.non_colocated_teachers", "env.reward_model")
"""What has nodes of its own where it is on."""
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
NEVER = "{keys} stand in none of the files, and NeMo-RL has no default for them{bases}"


class Step(Struct, frozen=True):
    """One optimizer step as files have it."""

    world: int | None
    """Devices of the trainer, without those that only generate."""
    samples: int | None
    sequence_tokens: int | None
    pair: int
    """Sequences of a sample."""
    packs: Batch | None = None
    """What the samples are packed into, where files pack and that is known."""

    @property
    def sequences(self) -> int | None:
        """What a micro-batch is counted in: packs, or samples."""
        return self.packs.global_batch_sequences if self.packs else self.samples


def packs(source: Source) -> bool:
    """Whether micro-batches are formed under a cap on tokens."""
    return any(source.value(f"{section}.enabled") is True for section in (PACKING, DYNAMIC))


def cap_key(source: Source) -> str:
    """The key of that cap."""
    return f"{DYNAMIC if source.value(f'{DYNAMIC}.enabled') is True else PACKING}.train_mb_tokens"


def interpret(
    source: Source, given: Given, release: str, *, name: str, section: str, surface: Surface, needed: Iterable[str],
    build: Callable[[Values, Step, Given], Layout | None],
) -> Reading:
    """Files as one of the back ends runs them. Nothing is a default: all is in YAML, of which a file may be missing."""
    values = Values(source=source, surface=surface, release=release, strict=True)
    pair = 2 if algorithm_of(source) in PAIRED else 1
    samples = _count(values, BATCH)
    step = Step(
        trainer_devices(values, given), samples * pair if samples else given.global_batch_sequences,
        _count(values, LENGTH) or given.sequence_tokens, pair, given.packs if packs(source) else None,
    )
    layout = None
    if _is_chosen(values, section):
        micro = (cap_key(source),) if packs(source) else (MICRO,)
        absent = [key for key in (*needed, *micro) if source.settings.get(key) is None]
        if absent:
            bases = missing_bases(source)
            values.refuse("nemo-rl.absent", NEVER, keys=", ".join(absent), bases=_asked_for(bases))
        else:
            layout = build(values, step, given)
    knobs = surface.knobs()
    said = Said(
        devices=step.world, global_batch_sequences=step.samples, sequence_tokens=step.sequence_tokens,
        precision=_precision(values, section), optimizer="adamw", task=_task(source, section),
    )
    return Reading(
        framework=name, version=release, source=source, said=said,
        layout=None if any(key in knobs for key in values.failed) else layout, messages=tuple(values.messages),
    )


def _asked_for(bases: tuple[str, ...]) -> str:
    """Which files to give."""
    return f": give {', '.join(bases)} as well, on which they build" if bases else ""


def _precision(values: Values, section: str) -> str | None:
    """The numbers of matrices."""
    if section == MEGATRON and values.bool(f"{MEGATRON}.fp8_cfg.enabled"):
        return {"blockwise": "fp8-blockwise", "mxfp8": "fp8-mx", "tensorwise": "fp8-cs", "delayed": "fp8-delayed"}.get(
            values.text(f"{MEGATRON}.fp8_cfg.fp8_recipe"))
    return PRECISIONS.get(values.text("policy.precision"))


def _task(source: Source, section: str) -> Task | None:
    """What is trained."""
    adapters = f"{section}.{'peft' if section == MEGATRON else 'lora_cfg'}.enabled"
    return "lora" if source.value(adapters) is True else "sft" if algorithm_of(source) == "sft" else None


def _is_chosen(values: Values, section: str) -> bool:
    """Whether the files run this back end; says what they run instead."""
    chosen = enabled(values.source)
    if chosen == (section,) or (not chosen and values.source.value(f"{section}.enabled") is None):
        return True
    if len(chosen) == 2:
        values.refuse("nemo-rl.back-ends", BOTH)
    elif chosen:
        values.refuse("nemo-rl.back-end", "the files switch {section} on: read them with --from {name}", section=chosen[0],
                      name=OTHER[chosen[0]])
    else:
        values.refuse("nemo-rl.back-end", NONE)
    return False


BOTH = ("Configure either Megatron (policy.megatron_cfg.enabled=true) or DTensor (policy.dtensor_cfg.enabled=true), not both.")
NONE = ("Please either set policy.megatron_cfg.enabled=true to use Megatron training backend or set "
        "policy.dtensor_cfg.enabled=true to use DTensor training backend.")


def _count(values: Values, key: str) -> int | None:
    """A whole number of at least 1; None where it is absent, wrong or only known to the run."""
    if not values.has(key):
        return None
    found = values.int(key)
    if found is not None and found < 1:
        values.note(key, "setting.degree", "{key} is {value}: at least 1 is expected", key=key, value=found)
        return None
    return found


def trainer_devices(values: Values, given: Given) -> int | None:
    """Devices of the cluster without those of a separate engine: some of the only node, or whole nodes.

    Source:  NeMo-RL 7ea279ab nemo_rl/algorithms/grpo.py ``setup``.
    """
    nodes, per_node = _count(values, NODES), _count(values, PER_NODE)
    if nodes is None or per_node is None:
        if given.num_devices is None and not values.failed & {NODES, PER_NODE}:
            values.refuse("import.devices", "the files do not say how many devices there are: give --devices, or --cluster")
        return given.num_devices
    if any(values.source.value(f"{other}.enabled") is True for other in _OTHERS):
        if given.num_devices is None:
            values.refuse("nemo-rl.others", "teachers or reward models take nodes of the cluster: give --devices, those of the "
                          "trainer alone")
        return given.num_devices
    if algorithm_of(values.source) not in GENERATING or values.source.value(f"{COLOCATED}.enabled") is not False:
        return nodes * per_node
    asked = _count(values, f"{COLOCATED}.resources.{'gpus_per_node' if nodes == 1 else 'num_nodes'}")
    left = (per_node - asked if nodes == 1 else (nodes - asked) * per_node) if asked else 0
    if left < 1:
        values.refuse("nemo-rl.separate", "the engine's resources leave no device to the trainer, or are not said")
        return None
    return left


def microbatch_of(values: Values, step: Step, dp: int | None) -> int:
    """Sequences of a micro-batch: as said, or what the cap on tokens stands for, which is of all context-parallel ranks."""
    if not packs(values.source):
        return values.degree(MICRO) * step.pair
    key = cap_key(values.source)
    cap, count = values.int(key), step.sequences
    tokens = step.packs.sequence_tokens if step.packs else step.sequence_tokens
    if not (cap and cap > 0 and tokens and count and dp) or count % dp:
        return 1
    size = sequences_under(cap, 1, tokens, count // dp)
    if size * tokens != cap:
        values.refuse("nemo-rl.packed", "micro-batches are packed up to {cap} tokens ({key}), read as {size} whole sequences of "
                      "{sequence}", cap=cap, key=key, size=size, sequence=tokens)
    return size


def is_unknown(source: Source, key: str) -> bool:
    """Whether only the run knows a value, or a file that is not there."""
    setting = source.settings.get(key)
    return (setting is None and bool(missing_bases(source))) or (setting is not None and setting.value is UNKNOWN)

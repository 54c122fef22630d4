"""What is wrong with the rollout engines of slime's flags, with where they stand, and with how weights get there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, equal
from meshwright.frameworks.rules import At, Mistake
from meshwright.frameworks.slime.flags import ASYNC, NODES, PER_NODE
from meshwright.frameworks.slime.reading import values_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_PLACES = "slime/ray/placement_group.py"
_ROLLOUT = "slime/ray/rollout.py"
_GPUS, _ENGINE, _NODE = "--rollout-num-gpus", "--rollout-num-gpus-per-engine", "--num-gpus-per-node"
_MEMORY = "--sglang-mem-fraction-static"
_SAMPLERS = ("--debug-train-only", "--load-debug-rollout-data", "--rollout-external-engine-addrs", "--sglang-config")
"""Where these stand, no engine is started by counts."""
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def _samples(reading: Reading) -> bool:
    return bool(reading.source.program) and not any(reading.source.value(key) is not None for key in _SAMPLERS)


def _gpus(reading: Reading) -> int | None:
    """GPUs of all engines."""
    values = values_of(reading)
    return values.int(_GPUS) if values.has(_GPUS) else reading.said.devices if values.bool("--colocate") else None


def _nowhere(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _samples(reading) and not any(reading.source.value(key) is not None for key in ("--colocate", _GPUS)):
        yield at(reading.source.settings.get(NODES), "--colocate, or --rollout-num-gpus")


def _left_over(reading: Reading, case: Case | None) -> Iterator[Values]:
    size, gpus = values_of(reading).int(_ENGINE, 1), _gpus(reading)
    if _samples(reading) and size and size > 0 and gpus and gpus % size:
        yield at(reading.source.settings.get(_ENGINE), f"a divisor of {gpus}", gpus=gpus, size=size, idle=gpus % size)


def _stages(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = values_of(reading)
    size, stages = values.int(_ENGINE, 1), values.int("--sglang-pp-size", 1)
    if size and stages and stages > 0 and size % stages:
        yield at(reading.source.settings.get("--sglang-pp-size"), f"a divisor of {size}", size=size)


def _small_nodes(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = values_of(reading)
    actor = values.int(PER_NODE, 8)
    if values.bool("--colocate") and actor and actor < 8 and not values.has(_NODE):
        yield at(reading.source.settings.get(PER_NODE), f"{_NODE} {actor}")


def _segments(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = values_of(reading)
    offloads = any(values.bool(f"--{name}") for name in ("colocate", "offload", "offload-train"))
    for name in _ALLOCATOR:
        setting = reading.source.environment.get(name)
        if offloads and setting is not None and "expandable_segments:True" in str(setting.value):
            yield at(setting, "max_split_size_mb, which limits fragments too", name=name)


def _is_delta(reading: Reading) -> bool:
    return values_of(reading).text("--update-weight-mode") == "delta"


def _released(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = values_of(reading)
    if not values.bool("--release-train"):
        return
    full = values.text("--update-weight-mode", "full") == "full" and values.text("--update-weight-transport") == "disk"
    for wrong, why in (
        (values.text("--advantage-estimator") == "ppo", "does not support critic training yet."),
        (values.bool("--keep-old-actor"), "does not support --keep-old-actor."),
        (not values.has("--save"), "requires --save so the next Megatron actor can reload."),
        (not full, "requires --update-weight-mode=full and --update-weight-transport=disk."),
    ):
        if wrong:
            yield at(reading.source.settings["--release-train"], None, why=why)
            return


def _other_transport(reading: Reading) -> Values | None:
    got = values_of(reading).text("--update-weight-transport", "nccl")
    return {"got": got} if got != "disk" else None


def _context(reading: Reading) -> Values | None:
    values = values_of(reading)
    prompt, context = values.int("--rollout-max-prompt-len"), values.int("--rollout-max-context-len")
    wrong = prompt is not None and context is not None and prompt > context - 1
    return {"prompt": prompt, "context": context} if wrong else None


def _share(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get(_MEMORY)
    share = values_of(reading).number(_MEMORY) if setting is not None else None
    if share is not None and not 0.0 < share <= 1.0:
        yield at(setting, "above 0 and at most 1")


ROLLOUTS = (
    Mistake("rollout-memory", "--sglang-mem-fraction-static {value} is a share of the whole GPU", _share,
            source="SGLang mem_fraction_static"),
    Mistake("rollout-gpus", "unsupported operand type(s) for +: 'int' and 'NoneType': --rollout-num-gpus has no default without "
            "--colocate", _nowhere, source=_PLACES),
    Mistake("rollout-left-over", "engines of {size} GPUs leave {idle} of {gpus} idle without a word", _left_over, "warning",
            _ROLLOUT),
    Mistake("rollout-stages", "rollout_num_gpus_per_engine ({size}) must be divisible by "
            "sglang_pipeline_parallel_size ({value})", _stages,
            source="slime/backends/sglang_utils/arguments.py"),
    Mistake("small-nodes", "the actor has {value} GPUs of a node, and engines are placed as on nodes of 8: --num-gpus-per-node is "
            "not given", _small_nodes, "warning", _ROLLOUT),
    Mistake("colocated-async", "Colocation is not supported for async training.",
            At("--colocate", "--rollout-num-gpus", when=lambda reading: reading.source.program.endswith(ASYNC)), source=ASYNC),
    Mistake("segments", "the training state is moved to the host by torch_memory_saver, which knows no expandable segments of "
            "{name}", _segments, "warning", "slime issue 381"),
    Mistake("temperature", "--rollout-temperature must be > 0; temperature 0 is greedy decoding and is not a valid RL policy.",
            At("--rollout-temperature", 1.0, when=lambda reading: (values_of(reading).number("--rollout-temperature") or 0) <= 0)),
    Mistake("context-length", "args.rollout_max_prompt_len ({prompt}) must be smaller than args.rollout_max_context_len "
            "({context}) so that there is at least one generated token to compute loss.",
            At("--rollout-max-prompt-len", when=_context)),
    Mistake("no-dataset", "num_epoch is set, but rollout_global_dataset is not set, please remove --disable-rollout-global-dataset "
            "to use num_epoch",
            At("--num-epoch", "no --disable-rollout-global-dataset", beside=("--disable-rollout-global-dataset",),
               without=("--num-rollout",))),
    Mistake("delta-colocated", "--update-weight-mode=delta is not supported with --colocate. Colocate transfers weights via CUDA "
            "IPC (only a handle crosses processes), so the delta bookkeeping (snapshot + diff + encode) is pure overhead.",
            At("--colocate", "--update-weight-mode full", when=_is_delta)),
    Mistake("delta-transport", "--update-weight-mode=delta requires --update-weight-transport=disk, got {got!r}.",
            At("--update-weight-mode", "--update-weight-transport disk", equal("delta"),
               when=_other_transport)),
    Mistake("delta-local", "--update-weight-mode=delta requires --update-weight-local-checkpoint-dir (a rollout-host-local NVMe "
            "directory).",
            At("--update-weight-mode", "--update-weight-local-checkpoint-dir", equal("delta"),
               without=("--update-weight-local-checkpoint-dir",))),
    Mistake("disk", "--update-weight-transport=disk requires --update-weight-disk-dir to point at a filesystem shared between the "
            "trainer and the rollout engines.",
            At("--update-weight-transport", "--update-weight-disk-dir", equal("disk"), without=("--update-weight-disk-dir",))),
    Mistake("release", "--release-train {why}", _released),
)

"""A layout as DeepSpeed's JSON, with a launch script for the user's own training program."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.domain.layout import Full, NoRecompute, Overlap
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.deepspeed.json_config import ZERO
from meshwright.frameworks.hub import hub_words
from meshwright.frameworks.manual import (
    TORCHRUN,
    Blank,
    Launch,
    Manual,
    Switch,
    Variable,
    launch_script,
    readme,
    start_commands,
    task_variables,
)

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

UNSPOKEN = (
    "overlap: stages 1 to 3 have one switch, which is also that of stage 3's parameters; stage 0 reduces after the backward pass",
    "the sequence length: the training program cuts the sequences",
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    keys = {**batch_keys(layout), **zero_keys(layout)}
    if layout.tensor_parallel > 1:
        keys["tensor_parallel.autotp_size"] = layout.tensor_parallel
    if layout.context_parallel > 1:
        keys["sequence_parallel_size"] = layout.context_parallel
        keys["data_parallel_size"] = layout.data_parallel
    if layout.expert_parallel > 1:
        keys["expert_parallel.enabled"] = True
        keys["expert_parallel.autoep_size"] = layout.expert_parallel
    if isinstance(layout.recompute, Full):
        keys["--gradient_checkpointing"] = True
    return keys


def batch_keys(layout: Layout) -> dict[str, object]:
    """All three batch keys, so that DeepSpeed checks them against the launch."""
    mb, steps = layout.microbatch_sequences, layout.num_microbatches
    return {
        "train_batch_size": mb * steps * layout.data_parallel, "train_micro_batch_size_per_gpu": mb,
        "gradient_accumulation_steps": steps,
    }


def zero_keys(layout: Layout) -> dict[str, object]:
    """The stage, its shard group where that is not all ranks, its overlap and its offload."""
    stage = layout.zero_stage
    keys: dict[str, object] = {f"{ZERO}.stage": stage}
    if stage:
        keys[f"{ZERO}.overlap_comm"] = layout.overlap.gradient_reduce
    if layout.parameter_shards > 1 and layout.parameter_shards < layout.optimizer_shards:
        keys[f"{ZERO}.zero_hpz_partition_size"] = layout.parameter_shards
    elif stage == 3 and layout.parameter_shards < layout.data_parallel * layout.context_parallel:
        keys[f"{ZERO}.mics_shard_size"] = layout.parameter_shards
    if layout.offload:
        keys[f"{ZERO}.offload_optimizer.device"] = "cpu"
        keys[f"{ZERO}.offload_optimizer.pin_memory"] = True
    return keys


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as DeepSpeed has it."""
    grad = layout.overlap.gradient_reduce and layout.zero_stage > 0
    overlap = Overlap(
        gradient_reduce=grad, parameter_gather=grad and layout.zero_stage == 3, tensor=False, point_to_point=False, expert=False
    )
    return replace(
        layout, overlap=overlap, sequence_parallel=False, stage_layers=None, schedule="1f1b",
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
        recompute=Full() if isinstance(layout.recompute, Full) else NoRecompute(),
    )


def _allocator(layout: Layout) -> tuple[Variable, ...]:
    """Weights that come and go leave fragments."""
    reason = "less fragmentation of gathered weights"
    gathers = layout.zero_stage == 3
    return (Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True", reason=reason),) if gathers else ()


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``ds_config.json``, ``launch.sh`` and ``README.md``."""
    manual = _manual(case, layout, release)
    checkpointing = " --gradient_checkpointing" if isinstance(layout.recompute, Full) else ""
    command = f'"$TRAIN_SCRIPT" --deepspeed --deepspeed_config "$HERE/ds_config.json"{checkpointing}'
    return (
        File(path="ds_config.json", text=json.dumps(config(case, decide(case, layout, release)), indent=2) + "\n"),
        launch_script(case, layout, options, manual, Launch(command=(*TORCHRUN, command))),
        readme(case, layout, options, manual),
    )


def config(case: Case, keys: Values) -> dict[str, Any]:
    """The whole document: what the layout decides, and the numbers of the training."""
    document: dict[str, Any] = {}
    for key, value in keys.items():
        if not key.startswith("-"):
            put(document, key, value)
    put(document, f"{case.training.precision.base_dtype}.enabled", True)
    if case.training.precision.gradient_bytes < 4:
        put(document, "data_types.grad_accum_dtype", case.training.precision.base_dtype)
    elif case.training.precision.base_dtype == "bf16" and document[ZERO]["stage"]:  # stage 0 refuses FP32 beside BF16
        put(document, "data_types.grad_accum_dtype", "fp32")
    if case.training.optimizer.name != "adamw" and document[ZERO]["stage"]:
        document["zero_allow_untested_optimizer"] = True
    return document


def put(document: dict[str, Any], key: str, value: object) -> None:
    """Set a dotted key."""
    *sections, name = key.split(".")
    for section in sections:
        document = document.setdefault(section, {})
    document[name] = value


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    mb, steps, cp = layout.microbatch_sequences, layout.num_microbatches, layout.context_parallel
    checkpointing = isinstance(layout.recompute, Full)
    trainer = f"`--deepspeed ds_config.json --per_device_train_batch_size {mb} --gradient_accumulation_steps {steps}"
    trainer += f"{' --gradient_checkpointing' if checkpointing else ''} --{case.training.precision.base_dtype}`"
    calls = [
        f"Sequences are cut to {case.batch.sequence_tokens} tokens by the training program.",
        f"With the Hugging Face Trainer the same values must also be given as arguments: {trainer}; it refuses a mismatch.",
    ]
    if checkpointing:
        calls.append("Recomputation is switched on in code: `--gradient_checkpointing` is for the training program, which calls "
                     "`model.gradient_checkpointing_enable()`; the JSON has no key for it.")
    if cp > 1:
        calls.append(f"Ulysses: `UlyssesSPAttentionHF.register_with_transformers(..., sequence_parallel_size={cp}, "
                     f"micro_batch_size={mb})` before the model is built, its `mpu` for `deepspeed.initialize`.")
    if case.training.precision.base_dtype == "bf16" and case.training.precision.gradient_bytes == 4 and layout.zero_stage < 2:
        stage = (
            "accumulates gradients in BF16"
            if layout.zero_stage == 0
            else "reduces FP32 gradients after the backward pass (BF16_Optimizer)"
        )
        calls.append(f"DeepSpeed {stage} in stage {layout.zero_stage}, whatever the prediction says.")
    if layout.offload:
        calls.append("Offload takes `deepspeed.ops.adam.DeepSpeedCPUAdam` (or an `optimizer` section of type AdamW), nothing else.")
    if 1 < layout.parameter_shards < layout.optimizer_shards:
        calls.append(
            "hpZ keeps a copy of the weights cut over its group beside the one cut over all ranks: their memory lies a "
            "little above the prediction."
        )
    elif layout.zero_stage == 3 and layout.parameter_shards < layout.data_parallel * cp:
        calls.append("MiCS: the model must be built under `deepspeed.zero.MiCS_Init`.")
    return Manual(
        title=f"DeepSpeed {release}",
        needs=f"The training program builds {hub_words(case.model)}, its data and its optimizer, and calls "
              "`deepspeed.initialize`.",
        commands=start_commands(layout, case, before="TRAIN_SCRIPT=/path/to/train.py"),
        blanks=(Blank(name="TRAIN_SCRIPT", default="train.py", what="your training program"),),
        variables=(*task_variables(case), *_allocator(layout)),
        off=(
            Switch(name="zero_optimization.zero_quantized_weights", risk="approximate", what="gathers weights in INT8 (ZeRO++)"),
            Switch(name="zero_optimization.zero_quantized_gradients", risk="approximate", what="reduces gradients in INT4 "
                                                                                               "(ZeRO++)"),
            Switch(name="compile.deepcompile", risk="equivalent", what="compiles the model with its collectives"),
        ),
        probe=_probe(layout),
        assumed=tuple(calls),
    )


def _probe(layout: Layout) -> str:
    """How to measure the memory of a rank."""
    return (
        "DeepSpeed has no fake process group: run one step on a single node with fewer layers (`num_hidden_layers` of the model's "
        "configuration) at two depths, read `torch.cuda.max_memory_reserved()` and extend the line to all layers; shards of "
        f"{layout.data_parallel * layout.context_parallel} ranks are larger on one node. "
        "`meshwright estimate --request plan.yaml --anchor-memory 0=BYTES` takes the result."
    )

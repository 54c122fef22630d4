"""A layout as accelerate's YAML for FSDP2 (or plain replicas), with a launch script for the user's own training program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.documents.quoting import Shell, flags, word, yaml_text
from meshwright.domain.layout import Full, NoRecompute, Overlap
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.hub import hub_words
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.manual import (
    Blank,
    Launch,
    Manual,
    Switch,
    launch_script,
    node_probe,
    num_nodes,
    readme,
    start_commands,
    task_variables,
)
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model

FSDP, MESH = "fsdp_config.fsdp_", "parallelism_config.parallelism_config_"
BACKEND = "dynamo_config.dynamo_backend"
STRATEGIES = {"all-gather": "allgather", "ring": "alltoall"}
"""Kind of context parallelism -> ``cp_comm_strategy``: all keys and values at once, or passed around."""
UNSPOKEN = (
    "overlap: FSDP2 always gathers and reduces beside compute, plain replicas always reduce beside it",
    "the sequence length: the training program cuts the sequences",
)
_LAYERS = {
    "ChatGLMModel": "GLMBlock", "GPT2LMHeadModel": "GPT2Block", "GPTNeoXForCausalLM": "GPTNeoXLayer",
    "GPTNeoXJapaneseForCausalLM": "GPTNeoXJapaneseLayer", "CTRLLMHeadModel": "EncoderLayer", "OpenAIGPTLMHeadModel": "Block",
    "ModernBertDecoderForCausalLM": "ModernBertDecoderLayer", "ChameleonForConditionalGeneration": "ChameleonDecoderLayer",
    "Molmo2ForConditionalGeneration": "Molmo2DecoderLayer",
    "JambaForCausalLM": "JambaAttentionDecoderLayer,JambaMambaDecoderLayer",
    "OlmoHybridForCausalLM": "OlmoHybridAttentionDecoderLayer,OlmoHybridLinearAttentionDecoderLayer",
    "Inkling2ForCausalLM": "Inkling2SlidingDecoderLayer,Inkling2FullDecoderLayer",
    **{f"{family}ForCausalLM": f"{family}Block" for family in (
        "Bloom", "CodeGen", "Dbrx", "FalconMamba", "GPTBigCode", "GPTJ", "GPTNeo", "Mamba", "Mamba2", "Mpt", "NemotronH",
    )},
    **{f"{family}ForCausalLM": f"{family}TextDecoderLayer" for family in (
        "Dots3Note", "Gemma3n", "Gemma4", "Gemma4Unified", "Llama4", "Qwen4Exp",
    )},
}
"""Where the layer of a class is called otherwise than ``FamilyDecoderLayer``; several kinds of layers stand behind one another."""


def layer_class(model: Model) -> str | None:
    """Name of the module that is one layer in transformers (several: with commas); None where the architecture is not known.

    >>> from meshwright.catalog import load_model
    >>> layer_class(load_model("llama3-8b"))
    'LlamaDecoderLayer'
    """
    name = model.architecture
    if name in _LAYERS:
        return _LAYERS[name]
    family, found, _ = name.partition("For")
    return {"ForCausalLM": f"{family}DecoderLayer", "ForConditionalGeneration": f"{family}TextDecoderLayer"}.get(found + _)


GRID = (
    Says(f"{MESH}dp_replicate_size", lambda plan: plan.dp // shard_size(plan.layout)),
    Says(f"{MESH}dp_shard_size", lambda plan: shard_size(plan.layout)),
    Says(f"{MESH}tp_size", "tensor_parallel"),
    Says(f"{MESH}cp_size", "context_parallel"),
    Says(f"{MESH}cp_comm_strategy", "context_kind", STRATEGIES, "all-gather", when=lambda plan: plan.cp > 1),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys of the YAML and the flags of the Trainer that express a layout."""
    sharded, checkpointing = layout.zero_stage >= 2, isinstance(layout.recompute, Full)
    keys: dict[str, object] = {
        "distributed_type": _kind(case, layout), "num_processes": layout.world,
        "--per_device_train_batch_size": layout.microbatch_sequences, "--gradient_accumulation_steps": layout.num_microbatches,
    }
    if layout.compiled:
        keys[BACKEND] = "INDUCTOR"
    if sharded and release == "fsdp1":
        keys |= {
            f"{FSDP}version": 1, f"{FSDP}sharding_strategy": _strategy(layout), f"{FSDP}offload_params": bool(layout.offload),
            f"{FSDP}activation_checkpointing": checkpointing,
        }
    elif sharded:
        keys |= {
            f"{FSDP}version": 2, f"{FSDP}reshard_after_forward": layout.zero_stage == 3,
            f"{FSDP}offload_params": bool(layout.offload),
            f"{FSDP}activation_checkpointing": checkpointing,
        }
    elif checkpointing:
        keys["--gradient_checkpointing"] = True
    if release not in {"fsdp1", "1.9"} and (sharded or layout.tensor_parallel > 1):
        keys |= decided(GRID, Planned(case, layout, release))
    return keys


def shard_size(layout: Layout) -> int:
    """Data-parallel ranks of a shard group; context-parallel ranks stand in it besides."""
    return max(1, layout.optimizer_shards // layout.context_parallel) if layout.zero_stage >= 2 else 1


def _strategy(layout: Layout) -> str:
    """The strategy of FSDP1: all ranks, or those of a node."""
    hybrid = layout.optimizer_shards < layout.data_parallel
    if layout.zero_stage == 3:
        return "HYBRID_SHARD" if hybrid else "FULL_SHARD"
    return "HYBRID_SHARD_ZERO2" if hybrid else "SHARD_GRAD_OP"


def _kind(case: Case, layout: Layout) -> str:
    """``distributed_type``: FSDP where something is sharded, else replicas on the kind of device."""
    if layout.zero_stage >= 2:
        return "FSDP"
    if layout.world == 1:
        return "NO"
    return (
        "MULTI_NPU"
        if case.cluster.device.family == "ascend"
        else "MULTI_CPU"
        if case.cluster.device.family == "cpu"
        else "MULTI_GPU"
    )


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as accelerate has it."""
    sharded = layout.zero_stage >= 2
    overlap = Overlap(gradient_reduce=True, parameter_gather=sharded, tensor=False, point_to_point=False, expert=False)
    return replace(
        layout, overlap=overlap, sequence_parallel=False, stage_layers=None, schedule="1f1b",
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
        recompute=Full() if isinstance(layout.recompute, Full) else NoRecompute(),
    )


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``accelerate_config.yaml``, ``launch.sh`` and ``README.md``."""
    keys = decide(case, layout, release)
    manual = _manual(case, layout, release)
    given = flags({key: value for key, value in keys.items() if key.startswith("--")})
    launch = Launch(
        command=(
            'accelerate launch --config_file "$HERE/accelerate_config.yaml" --machine_rank "$NODE"',
            '--main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"',
            " ".join([word(Shell("$TRAIN_SCRIPT")), *given]),
        )
    )
    return (
        File(path="accelerate_config.yaml", text=yaml_text(document(case, layout, keys))),
        launch_script(case, layout, options, manual, launch),
        readme(case, layout, options, manual),
    )


def document(case: Case, layout: Layout, keys: Values) -> dict[str, Any]:
    """The whole YAML: what the layout decides, and what goes with it."""
    found: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE", "debug": False, "distributed_type": keys["distributed_type"], "downcast_bf16": "no",
        "machine_rank": 0, "main_training_function": "main", "mixed_precision": case.training.precision.base_dtype,
        "num_machines": num_nodes(layout, case), "num_processes": layout.world, "rdzv_backend": "static", "same_network": True,
        "use_cpu": case.cluster.device.family == "cpu",
    }
    if layout.zero_stage >= 2:
        found["fsdp_config"] = {
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
        if name := layer_class(case.model):
            found["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] = name
    for key, value in keys.items():
        section, _, name = key.partition(".")
        if name:
            found.setdefault(section, {})[name] = value
    return {key: dict(sorted(value.items())) if isinstance(value, dict) else value for key, value in sorted(found.items())}


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    mb, steps = layout.microbatch_sequences, layout.num_microbatches
    checkpointing = isinstance(layout.recompute, Full)
    assumed = [
        f"The micro-batch and its accumulation are the training program's: `--per_device_train_batch_size {mb} "
        f"--gradient_accumulation_steps {steps}` of the Trainer, or a data loader with batch {mb} and "
        f"`Accelerator(gradient_accumulation_steps={steps})`.",
        f"Sequences are cut to {case.batch.sequence_tokens} tokens by the training program.",
    ]
    if layout.zero_stage >= 2:
        assumed.append("Under mixed precision accelerate keeps the sharded weights themselves in FP32: they are the master copy.")
        if layer_class(case.model) is None:
            assumed.append("The class of a layer is not known: transformers' `_no_split_modules` decides.")
    if layout.offload:
        assumed.append(
            "`fsdp_offload_params` moves parameters and gradients to the host as well; the prediction moves the optimizer only."
        )
    if layout.zero_stage >= 2 and checkpointing:
        assumed.append(
            "`fsdp_activation_checkpointing` recomputes each wrapped layer; do not give `--gradient_checkpointing` besides."
        )
    if case.launch.offloaded_checkpoints:
        assumed.append(
            'Checkpoints on the host are the training program\'s: `gradient_checkpointing_kwargs={"offload": True}` of a Trainer '
            "that has it, or `torch.autograd.graph.save_on_cpu(pin_memory=True)` around each layer."
        )
    if case.launch.slice_tokens:
        assumed.append(f"The feed-forward block in slices of {case.launch.slice_tokens} tokens is the training program's.")
    if layout.tensor_parallel > 1:
        assumed.append(
            'Tensor parallelism: load the model with `tp_plan="auto"` and the device mesh of `accelerator.torch_device_mesh`.'
        )
    if layout.context_parallel > 1:
        assumed.append(
            "Context parallelism: sdpa attention, and each step within `accelerator.maybe_context_parallel(...)` (the "
            "Trainer does it)."
        )
    return Manual(
        title=f"HF accelerate {release}",
        needs=f"The training program builds {hub_words(case.model)} and its data with transformers; torch 2.6 or "
              "later.",
        commands=start_commands(layout, case, before="TRAIN_SCRIPT=/path/to/train.py"),
        blanks=(Blank(name="TRAIN_SCRIPT", default="train.py", what="your training program"),),
        variables=task_variables(case),
        off=(
            Switch(name="fp8_config", risk="approximate", what="FP8 linear layers (torchao or Transformer Engine)"),
            *(() if layout.compiled else (Switch(name=f"{BACKEND}: INDUCTOR", risk="equivalent", what="compiles the model"),)),
        ),
        probe=node_probe("accelerate"),
        assumed=tuple(assumed),
    )

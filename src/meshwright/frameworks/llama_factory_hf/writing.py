"""A layout as LLaMA-Factory's training YAML, with the file of its engine and a launch script."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.documents.quoting import Shell, comment, interpolated, word, yaml_text
from meshwright.documents.source import UNKNOWN
from meshwright.domain.layout import Full, NoRecompute, Overlap
from meshwright.frameworks.accelerate import writing as accelerate
from meshwright.frameworks.adapters import HUB_PROJECTIONS, is_everywhere
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.deepspeed import writing as deepspeed
from meshwright.frameworks.deepspeed.json_config import AUTO, BATCH_KEYS
from meshwright.frameworks.hub import PLACEHOLDER, hub_name, hub_words
from meshwright.frameworks.llama_factory_hf.sources import ACCELERATE, DEEPSPEED
from meshwright.frameworks.manual import (
    Blank,
    Launch,
    Manual,
    Switch,
    Variable,
    devices_per_node,
    launch_script,
    node_probe,
    num_nodes,
    readme,
    start_commands,
    train_steps,
    unsaved,
)

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading

TRAIN, JSON_FILE, YAML_FILE = "train.yaml", "ds_config.json", "accelerate_config.yaml"
UNSPOKEN = (
    "overlap: replicas and FSDP2 always reduce and gather beside compute; DeepSpeed's stages 1 to 3 have one switch for both",
    "which kernel of attention: `flash_attn` names a library, and all but `disabled` are flash",
)
OPTIMIZERS = {"adamw": "adamw_torch_fused", "adamw-8bit": "adamw_8bit"}
"""Optimizer of the catalogue -> ``optim`` of the Trainer."""
DATA = {"pretrain": "c4_demo", "sft": "alpaca_en_demo", "lora": "alpaca_en_demo"}
"""Sets that stand in ``data/`` of a checkout."""
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_LATENT_ATTENTION = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_BLOCK = ("gate_proj", "up_proj", "down_proj")
_PLAIN_ACCELERATE = "1.9"
"""Of accelerate's releases the one without meshes: what LLaMA-Factory's Trainer makes of its YAML."""


def engine_of(layout: Layout, release: str) -> str:
    """What shards: accelerate's FSDP2, DeepSpeed, or nothing (plain replicas under torchrun)."""
    if release == "fsdp2":
        return "accelerate"
    return "deepspeed" if layout.zero_stage or layout.tensor_parallel > 1 else ""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The arguments that express a layout, and the engine's keys."""
    keys: dict[str, object] = {
        "per_device_train_batch_size": layout.microbatch_sequences, "gradient_accumulation_steps": layout.num_microbatches,
        "disable_gradient_checkpointing": not isinstance(layout.recompute, Full), "flash_attn": _attention(case, layout),
    }
    if layout.compiled:
        keys["torch_compile"] = True
    engine = engine_of(layout, release)
    if engine == "accelerate":
        return keys | {ACCELERATE + key: value for key, value in _yaml_keys(case, layout).items()}
    return keys | {DEEPSPEED + key: value for key, value in _json_keys(layout).items()} if engine else keys


def _attention(case: Case, layout: Layout) -> str:
    """``flash_attn``: packed samples need the kernel that knows where one ends."""
    if layout.attention == "math":
        return "disabled"
    return "fa2" if layout.attention == "flash" or is_packed(case) else "sdpa"


def is_packed(case: Case) -> bool:
    """Whether sequences are packs of samples that do not see one another."""
    return case.batch.packing is not None and case.training.task != "pretrain"


def _json_keys(layout: Layout) -> dict[str, object]:
    """DeepSpeed's keys; the Trainer fills in the batch."""
    keys: dict[str, object] = {**dict.fromkeys(BATCH_KEYS, AUTO), **deepspeed.zero_keys(layout)}
    return keys | ({"tensor_parallel.autotp_size": layout.tensor_parallel} if layout.tensor_parallel > 1 else {})


def _yaml_keys(case: Case, layout: Layout) -> dict[str, object]:
    """accelerate's keys without the Trainer's flags; LLaMA-Factory recomputes by itself."""
    kept = replace(layout, recompute=NoRecompute(), compiled=None)
    found = accelerate.decide(case, kept, _PLAIN_ACCELERATE)
    return {key: value for key, value in found.items() if not key.startswith("-")}


def normal(case: Case, layout: Layout, *, release: str) -> Layout:
    """The layout as LLaMA-Factory has it."""
    stage = layout.zero_stage
    grad = layout.overlap.gradient_reduce if engine_of(layout, release) == "deepspeed" else True
    gathers = stage == 3 and grad if release != "fsdp2" else stage >= 2
    grad = grad and (stage > 0 or engine_of(layout, release) != "deepspeed")
    overlap = Overlap(gradient_reduce=grad, parameter_gather=gathers, tensor=False, point_to_point=False, expert=False)
    return replace(
        layout, overlap=overlap, sequence_parallel=False, stage_layers=None, schedule="1f1b", context_kind="ring",
        recompute=Full() if isinstance(layout.recompute, Full) else NoRecompute(),
        attention=None if layout.attention == "flash" else layout.attention,
    )


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``train.yaml``, the engine's file, ``launch.sh`` and ``README.md``."""
    keys, engine = decide(case, layout, release), engine_of(layout, release)
    manual = _manual(case, layout, release)
    files = [File(path=TRAIN, text=_head(case, layout) + yaml_text(document(case, keys, engine, options)))]
    if engine == "deepspeed":
        files.append(File(path=JSON_FILE, text=json.dumps(_json(case, keys), indent=2) + "\n"))
    elif engine == "accelerate":
        yaml = accelerate.document(case, layout, _under(keys, ACCELERATE))
        files.append(File(path=YAML_FILE, text=yaml_text(yaml)))
    return (
        *files,
        launch_script(case, layout, options, manual, Launch(command=_command(engine))),
        readme(case, layout, options, manual),
    )


def _under(keys: Values, prefix: str) -> dict[str, object]:
    """Keys of an engine by their own names."""
    return {key.removeprefix(prefix): value for key, value in keys.items() if key.startswith(prefix)}


def _head(case: Case, layout: Layout) -> str:
    """The first line of the YAML."""
    words = f"{case.model.name} on {layout.world} x {case.cluster.device.name}: LLaMA-Factory, written by Meshwright."
    return f"# {comment(words)}\n"


def document(case: Case, keys: Values, engine: str, options: Options) -> dict[str, object]:
    """The whole YAML: what the case and the layout decide, and blanks, of which the launch gives each again."""
    own = {key: value for key, value in keys.items() if not key.startswith((DEEPSPEED, ACCELERATE))}
    found: dict[str, object] = {
        "model_name_or_path": interpolated(hub_name(case.model)), "stage": "pt" if case.training.task == "pretrain" else "sft",
        "do_train": True, "finetuning_type": "lora" if case.training.lora else "full", **_adapters(case),
        "dataset": DATA[case.training.task], "dataset_dir": "data", "cutoff_len": case.batch.sequence_tokens, **_packing(case),
        **own, case.training.precision.base_dtype: True, "optim": OPTIMIZERS[case.training.optimizer.name],
    }
    if engine == "deepspeed":
        found["deepspeed"] = JSON_FILE
    elif not case.model.is_moe:
        found["ddp_find_unused_parameters"] = False
    return found | {
        "max_steps": train_steps(case, options), "logging_steps": 1, "save_strategy": "no", "report_to": "none",
        "output_dir": "output", "overwrite_output_dir": True, **options.launch.keys,
    }


def _adapters(case: Case) -> dict[str, object]:
    """Rank and projections of the adapters; experts have none in the prediction."""
    lora = case.training.lora
    if lora is None:
        return {}
    if not case.model.is_moe and is_everywhere(lora):
        return {"lora_rank": lora.rank, "lora_target": "all"}
    latent = any(each.latent for each in case.model.attentions)
    modules = (*(_LATENT_ATTENTION if latent else _ATTENTION), *(() if case.model.is_moe else _BLOCK))
    named = [module for module in modules if set(HUB_PROJECTIONS[module]) & set(lora.targets)]
    return {"lora_rank": lora.rank, "lora_target": ",".join(named)}


def _packing(case: Case) -> dict[str, object]:
    """Stage ``pt`` cuts text into blocks by itself, and into shorter ones where ``packing`` stands there."""
    if case.training.task == "pretrain":
        return {}
    return {"packing": True, "neat_packing": True} if is_packed(case) else {"packing": False}


def _json(case: Case, keys: Values) -> dict[str, Any]:
    """The whole JSON: the layout's keys, the numbers of the training, and what the Trainer fills in."""
    document = deepspeed.config(case, _under(keys, DEEPSPEED))
    document |= {"gradient_clipping": AUTO, "zero_allow_untested_optimizer": True}
    if document["zero_optimization"]["stage"] == 3:
        deepspeed.put(document, "zero_optimization.stage3_gather_16bit_weights_on_model_save", True)
    return document


def _command(engine: str) -> tuple[str, ...]:
    """What every node runs: words behind the YAML win over it."""
    words = [f'"$HERE/{TRAIN}"']
    words += [f"{key}={word(Shell(f'${name}'))}" for key, name in (
        ("model_name_or_path", "MODEL"), ("dataset", "DATASET"), ("dataset_dir", "DATASET_DIR"), ("output_dir", "OUTPUT_DIR"))]
    if engine == "deepspeed":
        words.append(f'deepspeed="$HERE/{JSON_FILE}"')
    if engine == "accelerate":
        return (
            f'accelerate launch --config_file "$HERE/{YAML_FILE}" --machine_rank "$NODE"',
            '--main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" --module llamafactory.launcher',
            " ".join(words),
        )
    return ('env NODE_RANK="$NODE" llamafactory-cli train', " ".join(words))


def variables_of(case: Case, layout: Layout) -> tuple[Variable, ...]:
    """What ``llamafactory-cli`` reads: without it, it starts one process for each device that it sees on one node."""
    return (
        Variable(name="FORCE_TORCHRUN", value="1", reason="starts torchrun, on one device too: DeepSpeed asks for it"),
        Variable(name="NNODES", value=str(num_nodes(layout, case)), reason="nodes"),
        Variable(name="NPROC_PER_NODE", value=str(devices_per_node(layout.world, case.cluster.devices_per_node)),
                 reason="processes of a node"),
    )


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    engine = engine_of(layout, release)
    model = hub_name(case.model)
    beside = {"deepspeed": " and deepspeed", "accelerate": ""}.get(engine, "") + (", flash-attn" if is_packed(case) else "")
    version = "0.9.5 or later" if release == "fsdp2" else release
    return Manual(
        title=f"LLaMA-Factory {release}",
        needs=f"LLaMA-Factory {version}{beside}; the data sets of `data/` in its checkout, or your own. It trains "
              f"{hub_words(case.model)}.",
        commands=start_commands(layout, case, before="DATASET_DIR=/path/to/data"),
        blanks=(
            Blank(name="MODEL", default=model, what="weights to start from" + (": a placeholder" if model == PLACEHOLDER else "")),
            Blank(name="DATASET", default=DATA[case.training.task], what="names of dataset_info.json, with commas"),
            Blank(name="DATASET_DIR", default="data", what="folder with dataset_info.json"),
            Blank(name="OUTPUT_DIR", default=Shell("$HERE/output"), what="one for each plan"),
        ),
        variables=() if engine == "accelerate" else variables_of(case, layout),
        off=(
            Switch(name="enable_liger_kernel", risk="equivalent", what="fused norms, gates and loss: the logits are never whole"),
            *(() if layout.compiled else (Switch(name="torch_compile", risk="equivalent", what="compiles the model"),)),
            Switch(name="fp8", risk="approximate", what="FP8 linear layers through accelerate"),
            Switch(name="pure_bf16", risk="approximate", what="weights, gradients and moments in BF16 alone"),
        ),
        probe=node_probe("LLaMA-Factory"),
        assumed=_assumed(case, layout, release, engine),
    )


def _assumed(case: Case, layout: Layout, release: str, engine: str) -> tuple[str, ...]:
    """Where the files stand for something that they do not say exactly."""
    tokens = case.batch.sequence_tokens
    found = ["It is priced as plain modules of PyTorch (implementation `torch-eager`), as accelerate and DeepSpeed are here."]
    if case.training.task == "pretrain":
        found.append(f"Stage `pt` cuts text into blocks of {tokens} tokens; with `packing: true` they would be one token shorter. "
                     "It goes on from the weights of the model; `train_from_scratch: true` starts anew.")
    elif is_packed(case):
        found.append(f"`neat_packing` packs samples up to {tokens} tokens; its greedy knapsack is not what `meshwright pack` "
                     "counts.")
        if release == "0.9.4":
            found.append("0.9.4 refuses `neat_packing` with transformers 4.53 and later.")
    else:
        found.append(f"Every sample is predicted as {tokens} tokens: longer ones are cut, shorter ones are padded to the longest "
                     "of their micro-batch and take less. `template` is the tokenizer's own where it is not said.")
    found.append(unsaved("save_strategy", "resume_from_checkpoint"))
    if engine == "accelerate" and layout.zero_stage >= 2:
        found.append("Under mixed precision accelerate keeps the sharded weights themselves in FP32: they are the master copy.")
    elif not engine and layout.world > 1:
        found.append("Trained weights are FP32 and replicated on every device: DistributedDataParallel under autocast.")
    if layout.tensor_parallel > 1:
        found.append("AutoTP: the ranks of a tensor-parallel group get the same samples, so an optimizer step has micro-batch x "
                     "accumulation x world / tp sequences.")
    if case.training.lora and case.model.is_moe:
        found.append("Adapters stand at the projections of attention alone.")
    if layout.offload and engine == "accelerate":
        found.append("`fsdp_offload_params` moves parameters and gradients to the host as well; the prediction moves the optimizer "
                     "only.")
    return tuple(found)


def stays(reading: Reading, layout: Layout, key: str) -> bool:
    """Whether a user's value says another layout as well: the Trainer fills in a batch key that is ``auto``."""
    return key in {DEEPSPEED + name for name in BATCH_KEYS} and reading.source.value(key) is UNKNOWN


def alternatives() -> tuple[frozenset[str], ...]:
    """Batch keys of the JSON that must agree with the arguments where they are numbers."""
    micro, steps = "per_device_train_batch_size", "gradient_accumulation_steps"
    total, own_micro, own_steps = (DEEPSPEED + name for name in BATCH_KEYS)
    return (frozenset({micro, own_micro}), frozenset({steps, own_steps}), frozenset({micro, steps, total}))

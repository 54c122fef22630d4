"""A layout as LLaMA-Factory's YAML for its Megatron-Bridge back end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, comment, interpolated, word, yaml_text
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.bridge.deciding import decide as decide_fields
from meshwright.frameworks.bridge.limits import PRECISIONS
from meshwright.frameworks.hub import hub_name, hub_words
from meshwright.frameworks.llama_factory_hf.writing import DATA, variables_of
from meshwright.frameworks.llama_factory_megatron.sources import EXTRA, FIELDS, TEXT
from meshwright.frameworks.manual import (
    Blank,
    Launch,
    Manual,
    Switch,
    Variable,
    launch_script,
    readme,
    start_commands,
    train_steps,
    unsaved,
)

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

BELOW = "main"
"""The release of Megatron-Bridge that its fields are of."""
UNSPOKEN = ("context kind where there is one context-parallel rank", "overlap of what is not there")
_NAMES = {field: name for name, field in FIELDS.items()}
_FOLLOWS = frozenset({"optimizer.use_distributed_optimizer"})
"""What LLaMA-Factory sets by itself from its argument."""
_OFF_BY_ITSELF = frozenset({
    "optimizer.overlap_param_gather", "dist.use_megatron_fsdp", "ddp.use_megatron_fsdp", "model.tp_comm_overlap",
})
"""Fields that need no word where they are off."""
NEVER_SAVED = 1_000_000
"""``save_steps`` beyond every short run: there is no switch."""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """Bridge's fields under the names of LLaMA-Factory's arguments, the others in ``extra_config``.

    The global batch is micro x accumulation x world // (tp pp cp ep), so that accumulation counts ep beside the micro-batches.
    """
    keys: dict[str, object] = {}
    for field, value in decide_fields(case, layout, BELOW).items():
        if field in _NAMES:
            keys[_NAMES[field]] = value
        elif field not in _FOLLOWS and value is not None and not (field in _OFF_BY_ITSELF and value is False):
            keys[EXTRA + field] = value
    if not case.model.is_moe:
        keys = {key: value for key, value in keys.items() if "expert" not in key}
    keys["gradient_accumulation_steps"] = layout.num_microbatches * layout.expert_parallel
    return keys


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``train.yaml``, ``launch.sh`` and ``README.md``."""
    manual = _manual(case, layout, release)
    head = comment(f"{case.model.name} on {layout.world} x {case.cluster.device.name}: LLaMA-Factory, written by Meshwright.")
    words = [f"{key}={word(Shell(f'${name}'))}" for key, name in (
        ("model_name_or_path", "MODEL"), ("dataset", "DATASET"), ("dataset_dir", "DATASET_DIR"), ("output_dir", "OUTPUT_DIR"))]
    command = ('env NODE_RANK="$NODE" llamafactory-cli train', " ".join(['"$HERE/train.yaml"', *words]))
    return (
        File(path="train.yaml", text=f"# {head}\n{yaml_text(document(case, layout, decide(case, layout, release), options))}"),
        launch_script(case, layout, options, manual, Launch(command=command)),
        readme(case, layout, options, manual),
    )


def document(case: Case, layout: Layout, keys: Values, options: Options) -> dict[str, object]:
    """The whole YAML."""
    inside = {key.removeprefix(EXTRA): value for key, value in keys.items() if key.startswith(EXTRA)}
    lora, task = case.training.lora, case.training.task
    found: dict[str, object] = {
        "model_name_or_path": interpolated(hub_name(case.model)), "stage": "pt" if task == "pretrain" else "sft", "do_train": True,
        "finetuning_type": "lora" if lora else "full", **({"lora_rank": lora.rank, "lora_target": "all"} if lora else {}),
        "dataset": DATA[task], "dataset_dir": "data", "cutoff_len": case.batch.sequence_tokens,
        **({"use_packed_sequences": case.batch.packing is not None} if task != "pretrain" else {}),
        **{key: value for key, value in keys.items() if not key.startswith(EXTRA)},
        case.training.precision.base_dtype: True, "mixed_precision": PRECISIONS[case.training.precision.name],
        "max_steps": train_steps(case, options), "logging_steps": 1, "save_steps": NEVER_SAVED, "report_to": "none",
        "output_dir": "output", "overwrite_output_dir": True,
    }
    return found | ({TEXT: json.dumps(inside)} if inside else {})


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    return Manual(
        title=f"LLaMA-Factory (Megatron-Bridge) {release}",
        needs="LLaMA-Factory ff6d4d12 or later in Megatron-Bridge's container; the data sets of `data/` in its checkout, or your "
              f"own. It trains {hub_words(case.model)}.",
        commands=start_commands(layout, case, before="DATASET_DIR=/path/to/data"),
        blanks=(
            Blank(name="MODEL", default=hub_name(case.model), what="weights to start from"),
            Blank(name="DATASET", default=DATA[case.training.task], what="names of dataset_info.json, with commas"),
            Blank(name="DATASET_DIR", default="data", what="folder with dataset_info.json"),
            Blank(name="OUTPUT_DIR", default=Shell("$HERE/output"), what="one for each plan"),
        ),
        variables=(
            Variable(name="USE_MEGATRON_BRIDGE", value="1", reason="the back end; it starts torchrun by itself"),
            *variables_of(case, layout),
            Variable(name="CUDA_DEVICE_MAX_CONNECTIONS", value="1", reason="collectives start before the GEMMs behind them"),
        ),
        off=(
            Switch(name="moe_token_dispatcher_type: flex", risk="equivalent", what="DeepEP instead of all-to-all"),
            Switch(name="cross_entropy_loss_fusion", risk="exact", what="keeps fewer copies of the logits"),
        ),
        assumed=_assumed(case, layout),
    )


def _assumed(case: Case, layout: Layout) -> tuple[str, ...]:
    """Where the files stand for something that they do not say exactly."""
    found = [
        "It is priced as Megatron-Bridge (implementation `megatron-te`).",
        "Fields that no argument names stand in `extra_config`, which sets them without a check of their names.",
        "Weights are converted to a Megatron checkpoint in `OUTPUT_DIR` before the first step. "
        + unsaved("save_steps"),
    ]
    if layout.expert_parallel > 1:
        found.append(f"LLaMA-Factory counts ep as a factor of the world: accumulation is {layout.num_microbatches} micro-batches x "
                     f"ep {layout.expert_parallel}, for a global batch of {case.batch.global_batch_sequences}.")
    if case.training.lora and case.model.is_moe:
        found.append("Its adapters stand at the experts too (`linear_fc1`, `linear_fc2`), which the prediction does not count.")
    if case.training.task != "pretrain" and case.batch.packing is None:
        found.append(f"Every sample is predicted as {case.batch.sequence_tokens} tokens.")
    return tuple(found)

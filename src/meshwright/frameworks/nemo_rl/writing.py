"""A plan as NeMo-RL's files: a recipe above one of its own, a script that starts it, and a README."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.documents.quoting import Shell, comment, interpolated, word, yaml_text
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.hub import hub_name
from meshwright.frameworks.manual import Launch, devices_per_node, launch_script, num_nodes, readme, train_steps
from meshwright.frameworks.nemo_rl.guide import manual_of
from meshwright.frameworks.nemo_rl.keys import (
    BATCH,
    COLOCATED,
    DTENSOR,
    ENGINE,
    LENGTH,
    MEGATRON,
    NODES,
    PACKING,
    PER_NODE,
    is_tuning,
)
from meshwright.frameworks.verl.batch import longest_tokens, responses_for, samples_of
from meshwright.frameworks.verl.rollout import rollout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

RECIPE = "recipe.yaml"
_BASE = "${oc.env:NEMO_RL}/examples/configs/"
"""Where NeMo-RL's own recipes are: OmegaConf fills the folder in."""
MEGATRON_OPTIMIZER: Values = {
    "bf16": True, "fp16": False, "params_dtype": "float32", "use_precision_aware_optimizer": True, "optimizer": "adam",
    "min_lr": 0.0,
}
"""What prices assume of Megatron's optimizer, and a floor under every learning rate."""


def write(
    section: str, decide: Callable[[Case, Layout, str], Values], own: Values, case: Case, layout: Layout, release: str,
    options: Options,
) -> tuple[File, ...]:
    """``recipe.yaml``, ``run.sh`` and ``README.md``; ``own``: what the back end needs beside a layout."""
    manual = manual_of(section, case, layout, release)
    head = comment(f"{case.model.name} on {layout.world} x {case.cluster.device.name}: {manual.title}, written by Meshwright.")
    keys = {**_recipe(section, case, layout, options), **own, **decide(case, layout, release), **options.launch.keys}
    program = "sft" if is_tuning(case) else "grpo"
    rates = [f"{section}.optimizer.lr"] if section == MEGATRON else ["policy.optimizer.kwargs.lr"]
    words = " ".join(f"{key}={word(Shell(f'${name}'))}" for key, name in (
        ("policy.model_name", "MODEL_PATH"), *((rate, "LEARNING_RATE") for rate in rates),
        ("checkpointing.checkpoint_dir", "CHECKPOINT_DIR")))
    launch = Launch(
        checkout="NEMO_RL", command=(f'uv run examples/run_{program}.py --config "$HERE/{RECIPE}"', words), ray="uv run",
    )
    return (
        File(path=RECIPE, text=f"# {head}\n{yaml_text(nested(keys))}"),
        launch_script(case, layout, options, manual, launch, path="run.sh"),
        readme(case, layout, options, manual),
    )


def nested(keys: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys as sections.

    >>> nested({"a.b": 1, "a.c.d": 2, "e": 3})
    {'a': {'b': 1, 'c': {'d': 2}}, 'e': 3}
    """
    whole: dict[str, Any] = {}
    for key, value in keys.items():
        *sections, name = key.split(".")
        there = whole
        for section in sections:
            there = there.setdefault(section, {})
        there[name] = value
    return whole


def _recipe(section: str, case: Case, layout: Layout, options: Options) -> dict[str, object]:
    """Everything that is no layout: algorithm, length of the run, model, cluster, engine."""
    samples, longest = samples_of(case), longest_tokens(case)
    tuning, steps, nodes = is_tuning(case), train_steps(case, options), num_nodes(layout, case)
    other = DTENSOR if section == MEGATRON else MEGATRON
    found: dict[str, object] = {"defaults": f"{_BASE}{'sft' if tuning else 'grpo_math_1B'}.yaml"}
    if tuning:
        found |= {"sft.max_num_steps": steps, "sft.val_period": 0, "sft.val_at_start": False}
    else:
        responses = responses_for(samples)
        found |= {
            "grpo.num_prompts_per_step": samples // responses, "grpo.num_generations_per_prompt": responses,
            "grpo.max_num_steps": steps, "grpo.val_period": 0, "grpo.val_at_start": False,
        }
    found |= {
        "checkpointing.enabled": False, "policy.model_name": interpolated(hub_name(case.model)), BATCH: samples,
        LENGTH: longest, "policy.precision": "bfloat16", f"{PACKING}.algorithm": "modified_first_fit_decreasing",
        f"{section}.enabled": True, f"{other}.enabled": False,
    }
    if not tuning:
        rollout = rollout_of(case, layout)
        found |= {
            "policy.generation.backend": "vllm", f"{COLOCATED}.enabled": True,
            f"{ENGINE}.tensor_parallel_size": rollout.tensor_parallel, f"{ENGINE}.gpu_memory_utilization": rollout.utilization,
        }
    return found | {
        "logger.wandb_enabled": False, "logger.tensorboard_enabled": False,
        PER_NODE: devices_per_node(layout.world, case.cluster.devices_per_node), NODES: nodes,
    }

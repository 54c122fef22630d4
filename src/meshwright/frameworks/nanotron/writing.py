"""A layout as nanotron's YAML: every section that its dataclasses demand, every degree explicit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import yaml

from meshwright.documents.quoting import Shell
from meshwright.domain.layout import Full, Overlap
from meshwright.domain.model import Mlp
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.hub import PLACEHOLDER, hub_name
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.manual import (
    TORCHRUN,
    Blank,
    Launch,
    Manual,
    Variable,
    launch_script,
    readme,
    start_commands,
    train_steps,
    unsaved,
)
from meshwright.frameworks.planned import Planned
from meshwright.frameworks.rules import attention_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Layout

_FLASH = "flash_attention_2"
ATTENTION: dict[ContextKind, str] = {"all-gather": "llama3_ring_attention", "ring": "ring"}
UNSPOKEN = (
    "overlap: gradients are reduced behind the last backward pass, as ZeRO-1 does it; parameters and stages overlap with nothing",
    "overlap=tp without sequence parallelism, under which nanotron has none",
    "layers by stage: nanotron places blocks by their cost",
)
CHECKPOINT = "INITIAL_CHECKPOINT"
"""Stands where a run with context parallelism needs the weights of one without."""


KEYS = (
    Says("parallelism.dp", "data_parallel"),
    Says("parallelism.tp", "tensor_parallel"),
    Says("parallelism.pp", "pipeline_parallel"),
    Says("parallelism.context_parallel_size", "context_parallel"),
    Says("parallelism.expert_parallel_size", lambda plan: 1),
    Says("parallelism.pp_engine", "schedule", {"1f1b": "1f1b", "gpipe": "afab"}, "gpipe"),
    Says("parallelism.tp_mode", lambda plan: "REDUCE_SCATTER" if plan.sp else "ALL_REDUCE"),
    Says("parallelism.tp_linear_async_communication", lambda plan: plan.layout.overlap.tensor and plan.sp),
    Says("parallelism.recompute_layer", lambda plan: isinstance(plan.layout.recompute, Full)),
    Says("optimizer.zero_stage", lambda plan: plan.zero),
    Says("tokens.micro_batch_size", "microbatch_sequences"),
    Says("tokens.batch_accumulation_per_replica", "num_microbatches"),
    Says("model.model_config._attn_implementation", lambda plan: ATTENTION[plan.layout.context_kind] if plan.cp > 1 else _FLASH),
    Says("model.model_config.ring_attn_heads_k_stride", lambda plan: 1,
         when=lambda plan: plan.cp > 1 and plan.kind == "all-gather"),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    return decided(KEYS, Planned(case, layout, release))


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as nanotron has it: its own split, its own overlaps, no sequence parallelism without tensor parallelism."""
    sequence = layout.sequence_parallel and layout.tensor_parallel > 1
    return replace(
        layout, stage_layers=None, sequence_parallel=sequence,
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
        overlap=Overlap(
            gradient_reduce=False, parameter_gather=False, tensor=layout.overlap.tensor and sequence, point_to_point=False,
            expert=False,
        ),
    )


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``config.yaml``, ``launch.sh`` and ``README.md``."""
    layout = normal(case, layout)
    manual = _manual(case, layout, release)
    launch = Launch(checkout="NANOTRON_PATH", command=(*TORCHRUN, 'run_train.py --config-file "$HERE/config.yaml"'))
    text = yaml.safe_dump(_config(case, layout, release, options), sort_keys=False, width=120)
    return (
        File(path="config.yaml", text=text),
        launch_script(case, layout, options, manual, launch),
        readme(case, layout, options, manual),
    )


def _config(case: Case, layout: Layout, release: str, options: Options) -> dict[str, object]:
    """The whole document, section by section."""
    steps = train_steps(case, options)
    warmup = min(steps // 10, 2000)
    document: dict[str, object] = {
        "general": {"project": "meshwright", "run": "%date_%jobid", "seed": 42, "ignore_sanity_checks": True},
        "parallelism": {"tp_recompute_allgather": True},
        "model": {
            "model_config": _model(case, layout), "init_method": {"std": 0.02}, "dtype": "bfloat16",
            "make_vocab_size_divisible_by": 1, "ddp_bucket_cap_mb": 25,
        },
        "tokenizer": {
            "tokenizer_name_or_path": hub_name(case.model), "tokenizer_revision": None, "tokenizer_max_length": None,
        },
        "tokens": {"sequence_length": case.batch.sequence_tokens, "train_steps": steps},
        "optimizer": {
            "optimizer_factory": {
                "name": "adamW", "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True,
            },
            "weight_decay": 0.1, "clip_grad": 1.0, "accumulate_grad_in_fp32": case.training.precision.gradient_bytes > 2.0,
            "learning_rate_scheduler": {
                "learning_rate": 3e-4, "lr_warmup_steps": warmup, "lr_warmup_style": "linear", "lr_decay_style": "cosine",
                "lr_decay_steps": max(steps - warmup, 1), "lr_decay_starting_step": None, "min_decay_lr": 3e-5,
            },
        },
        "checkpoints": {
            "checkpoints_path": "checkpoints", "checkpoint_interval": 10**9, "save_initial_state": False,
            "save_final_state": False, "checkpoints_path_is_shared_file_system": False,
            "resume_checkpoint_path": CHECKPOINT if layout.context_parallel > 1 else None,
        },
        "logging": {"log_level": "info", "log_level_replica": "info", "iteration_step_info_interval": 1},
        "data_stages": [
            {"name": "training", "start_training_step": 1, "data": {"dataset": None, "seed": 42, "num_loading_workers": 1}}
        ],
    }
    for key, value in {**decide(case, layout, release), **options.launch.keys}.items():
        *sections, name = key.split(".")
        section = document
        for each in sections:
            below = section[each]
            assert isinstance(below, dict), f"{each} is a section"
            section = below
        section[name] = value
    return document


def is_qwen(case: Case, layout: Layout) -> bool:
    """Whether the model runs as ``Qwen2ForTraining``: biases, experts and context parallelism exist there only."""
    return attention_of(case).query_bias or case.model.is_moe or layout.context_parallel > 1


def _model(case: Case, layout: Layout) -> dict[str, object]:
    """``model_config``: the model's own figures."""
    model, attention, block = case.model, attention_of(case), case.model.feed_forward
    kind = "is_qwen2_config" if is_qwen(case, layout) else "is_llama_config"
    config: dict[str, object] = {
        kind: True, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": model.hidden,
        "initializer_range": 0.02, "intermediate_size": block.width if isinstance(block, Mlp) else block.expert_width,
        "max_position_embeddings": case.batch.sequence_tokens, "num_attention_heads": attention.num_heads,
        "num_hidden_layers": model.num_layers, "num_key_value_heads": attention.num_key_value_heads,
        "attention_bias": attention.query_bias, "pretraining_tp": 1, "rms_norm_eps": model.norm_epsilon or 1e-5,
        "rope_scaling": None,
        "rope_theta": float(model.rotary_base or 10000.0), "rope_interleaved": False,
        "tie_word_embeddings": model.tied_embeddings, "use_cache": True, "vocab_size": model.vocabulary,
    }
    if not isinstance(block, Mlp):
        config["moe_config"] = {
            "num_experts": block.num_experts, "top_k": block.experts_per_token, "moe_intermediate_size": block.expert_width,
            "shared_expert_intermediate_size": block.shared_width, "enable_shared_expert": block.shared_width > 0,
            "layers": [-1], "token_dispatcher_type": "alltoall",
        }
    return config


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    blanks = [Blank(name="NANOTRON_PATH", default=Shell("$PWD"), what=f"checkout of nanotron {release} (2411b02)")]
    if hub_name(case.model) == PLACEHOLDER:
        blanks.append(
            Blank(name="tokenizer.tokenizer_name_or_path", default=PLACEHOLDER, what="in config.yaml; unused with dummy data")
        )
    if layout.context_parallel > 1:
        what = (
            "in config.yaml: a checkpoint of the run with context_parallel_size 1, as nanotron cannot initialise weights with more"
        )
        blanks.append(Blank(name="checkpoints.resume_checkpoint_path", default=CHECKPOINT, what=what))
    return Manual(
        title=f"nanotron {release}",
        commands=start_commands(layout, case, before="NANOTRON_PATH=/path/to/nanotron"),
        blanks=tuple(blanks),
        variables=(
            Variable(name="CUDA_DEVICE_MAX_CONNECTIONS", value="1", reason="nanotron asserts it with tensor parallelism"),
            Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True", reason="less fragmentation near the "
                "memory limit"),
        ),
        probe=(
            "nanotron has no dry run: the first steps of the run itself on dummy data show the memory of each rank (log line "
            "`Peak allocated`). Give it back with `meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES`."
        ),
        assumed=(
            "Data are nanotron's dummy sequences (`dataset: null`); learning rate and its schedule are placeholders.",
            "`max_position_embeddings` is the sequence length.",
            unsaved("checkpoints.checkpoint_interval", "checkpoints.checkpoints_path"),
            "Layers stand where nanotron's block costs put them; it prints the parameter count with doubled embeddings where "
                "they are tied.",
        ),
    )

"""A layout as picotron's JSON: every degree is explicit, and everything that picotron reads stands there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.domain.layout import Overlap
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
    from meshwright.domain.layout import Layout

UNSPOKEN = ("overlap: gradients are always reduced beside the backward pass, nothing else overlaps",)


KEYS = (
    Says("distributed.tp_size", "tensor_parallel"),
    Says("distributed.cp_size", "context_parallel"),
    Says("distributed.pp_size", "pipeline_parallel"),
    Says("distributed.dp_size", "data_parallel"),
    Says("distributed.pp_engine", "schedule", {"1f1b": "1f1b", "gpipe": "afab"}),
    Says("training.micro_batch_size", "microbatch_sequences"),
    Says("training.gradient_accumulation_steps", "num_microbatches"),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    return decided(KEYS, Planned(case, layout, release))


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as picotron has it: one overlap, an even split, 1F1B where there is one stage."""
    overlap = Overlap(gradient_reduce=True, parameter_gather=False, tensor=False, point_to_point=False, expert=False)
    return replace(layout, overlap=overlap, stage_layers=None)


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``config.json``, ``launch.sh`` and ``README.md``."""
    manual = _manual(case, layout, release)
    launch = Launch(checkout="PICOTRON_PATH", command=(*TORCHRUN, 'train.py --config "$HERE/config.json"'))
    return (
        File(path="config.json", text=json.dumps(_config(case, layout, release, options), indent=4) + "\n"),
        launch_script(case, layout, options, manual, launch),
        readme(case, layout, options, manual),
    )


def _config(case: Case, layout: Layout, release: str, options: Options) -> dict[str, dict[str, object]]:
    """The whole document, section by section."""
    attention = attention_of(case)
    document: dict[str, dict[str, object]] = {
        "distributed": {"use_cpu": case.cluster.device.family == "cpu"},
        "model": {
            "name": hub_name(case.model), "num_hidden_layers": case.model.num_layers,
            "num_attention_heads": attention.num_heads, "num_key_value_heads": attention.num_key_value_heads,
        },
        "training": {
            "seed": 42, "learning_rate": 3e-4, "total_train_steps": train_steps(case, options),
            "seq_length": case.batch.sequence_tokens, "num_samples": None, "max_tokens": None,
        },
        "dataset": {"name": "roneneldan/TinyStories", "subset_name": None, "num_workers": 0, "num_proc": 1},
        "checkpoint": {"save_dir": "checkpoints", "save_frequency": 10**9, "load_path": ""},
        "logging": {"use_wandb": False, "project_name": "picotron", "run_name": None},
        "environment": {
            "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
            "FLASH_ATTEN": "0" if case.cluster.device.family == "cpu" else "1", "HF_TOKEN": None,
        },
    }
    for key, value in decide(case, layout, release).items():
        section, name = key.split(".")
        document[section][name] = value
    return document


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    before = "PICOTRON_PATH=/path/to/picotron HF_TOKEN=..."
    unnamed = hub_name(case.model) == PLACEHOLDER
    return Manual(
        title=f"picotron {release}",
        needs="picotron takes the model's width and vocabulary from the Hugging Face hub, so `HF_TOKEN` must be set.",
        commands=start_commands(layout, case, before=before),
        blanks=(
            Blank(name="PICOTRON_PATH", default=Shell("$PWD"), what=f"checkout of picotron at {release}"),
            *((Blank(name="model.name", default=PLACEHOLDER, what="in config.json: its name on the hub"),) if unnamed else ()),
        ),
        variables=(
            Variable(name="CUDA_DEVICE_MAX_CONNECTIONS", value="1", reason="reductions start before the products behind them"),
        ),
        assumed=("Data and learning rate in `config.json` are those of picotron's template.",
                 unsaved("checkpoint.save_frequency", "checkpoint.save_dir", "checkpoint.load_path"),
                 "`max_position_embeddings` becomes the sequence length, as picotron does it."),
    )

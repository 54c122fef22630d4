"""All arguments of a run in named groups: model, layout, numbers, optimizer, data and length."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.frameworks.launching import SILENT, Told
from meshwright.frameworks.megatron.flags import Arguments, Version, surface
from meshwright.frameworks.megatron.layout_arguments import decide
from meshwright.frameworks.megatron.model_arguments import add_model
from meshwright.frameworks.megatron.precision_arguments import (
    add_dispatcher,
    add_offload,
    add_optimizer,
    add_precision,
)

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

_SHARDING = {"zero", "overlap", "offload"}
"""Knobs whose flags stand apart from degrees and stages."""
ORDER = ("MODEL", "LAYOUT", "SHARDING", "PRECISION", "OPTIMIZER")
"""In which groups are written."""


def groups(case: Case, layout: Layout, version: Version, launch: Told = SILENT) -> dict[str, Arguments]:
    """All arguments but data and length of the run."""
    named = groups_of_case(case, version) | groups_of_layout(case, layout, version)
    for each in named.values():
        each.leave_out(launch.without)
    asked = Arguments(version=version)
    asked.update({flag: tuple(value) if isinstance(value, list) else value for flag, value in launch.keys.items()})
    return {name: named[name] for name in ORDER} | ({"LAUNCH": asked} if launch.keys else {})


def groups_of_case(case: Case, version: Version) -> dict[str, Arguments]:
    """Those that every layout of a case has."""
    named = {name: Arguments(version=version) for name in ("MODEL", "PRECISION", "OPTIMIZER")}
    add_model(named["MODEL"], case)
    add_precision(named["PRECISION"], case)
    add_optimizer(named["OPTIMIZER"], case)
    return named


def groups_of_layout(case: Case, layout: Layout, version: Version) -> dict[str, Arguments]:
    """Those that say the layout."""
    named = {name: Arguments(version=version) for name in ("LAYOUT", "SHARDING")}
    decided, keys = decide(case, layout, version.name), surface()
    shards = {flag for flag in decided if keys.knob(flag) in _SHARDING}
    named["LAYOUT"].update({flag: value for flag, value in decided.items() if flag not in shards})
    named["LAYOUT"].add("--global-batch-size", case.batch.global_batch_sequences)
    named["LAYOUT"].add("--seq-length", case.batch.sequence_tokens)
    add_dispatcher(named["LAYOUT"], case)
    add_offload(named["LAYOUT"], case)
    named["SHARDING"].update({flag: value for flag, value in decided.items() if flag in shards})
    return named


def data_arguments(case: Case, layout: Layout, version: Version) -> tuple[Arguments, Arguments]:
    """Arguments for mock data, and for the user's."""
    mock, real = Arguments(version=version), Arguments(version=version)
    mock.add("--mock-data")
    mock.add("--tokenizer-type", "NullTokenizer")
    mock.add("--vocab-size", case.model.vocabulary - 1)  # the NullTokenizer adds one token of its own
    real.add("--data-path", Shell("$DATA_PATH"))
    real.add("--split", "99,1,0")
    if case.training.task == "sft":
        real.add("--sft")
        real.add("--sft-tokenizer-prompt-format", Shell("$PROMPT_FORMAT"))
    real.add("--tokenizer-type", Shell("$TOKENIZER_TYPE"))
    real.add("--tokenizer-model", Shell("$TOKENIZER_MODEL"))
    unit = case.implementation.pads_vocabulary_to * layout.tensor_parallel
    rows = ceil(case.model.vocabulary / unit) * unit  # the planned table, whatever the tokenizer counts
    real.add_if(version.minor >= 14, "--padded-vocab-size", rows)
    return mock, real


def run_arguments(version: Version, launch: Told = SILENT) -> Arguments:
    """Length of the run, logging and the dataloader."""
    run = Arguments(version=version)
    run.add("--train-iters", Shell("$TRAIN_ITERS"))
    run.add("--eval-interval", 1000)
    run.add("--eval-iters", 0)
    run.add("--log-interval", 1)
    run.add("--log-throughput")
    run.add("--no-create-attention-mask-in-dataloader")
    run.add("--distributed-timeout-minutes", 30)
    run.add("--manual-gc")
    run.add("--manual-gc-interval", 100)
    run.leave_out(launch.without)
    return run


def checkpoint_arguments(version: Version) -> Arguments:
    """Checkpoints, where a directory is named."""
    kept = Arguments(version=version)
    kept.add("--save", Shell("$CHECKPOINT_DIR"))
    kept.add("--load", Shell("$CHECKPOINT_DIR"))
    kept.add("--save-interval", Shell("$SAVE_INTERVAL"))
    return kept

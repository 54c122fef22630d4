"""A plan as a launch of Megatron-Bridge's own recipe script, with one override for every field that the plan decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, hydra, word
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.bridge.deciding import decide
from meshwright.frameworks.bridge.limits import PRECISIONS
from meshwright.frameworks.bridge.sources import RESET
from meshwright.frameworks.hub import hub_name
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
    train_steps,
)

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

MODES = {"pretrain": "pretrain", "sft": "sft", "lora": "peft"}
"""Task -> the word that names of recipes have for it."""


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``launch.sh`` and ``README.md``."""
    manual = _manual(case, layout, release)
    words = [f"{key}={word(hydra(value))}" for key, value in overrides(case, layout, release, options).items()]
    select = ('--recipe "$RECIPE"',) if release == "0.3" else (f'--model "$RECIPE" --mode {_mode(case)}',)
    launch = Launch(checkout="BRIDGE_PATH", command=(*TORCHRUN, "scripts/training/run_recipe.py", *select, *words))
    return (launch_script(case, layout, options, manual, launch), readme(case, layout, options, manual))


def overrides(case: Case, layout: Layout, release: str, options: Options) -> dict[str, object]:
    """Field -> value: what the plan decides, what must be set back, and what the case fixes."""
    decided = decide(case, layout, release)
    steps, sequence = train_steps(case, options), case.batch.sequence_tokens
    length = "dataset.sequence_length" if release == "0.3" and case.training.task == "pretrain" else "dataset.seq_length"
    fixed: dict[str, object] = {
        "train.global_batch_size": case.batch.global_batch_sequences, "train.train_iters": steps, "model.seq_length": sequence,
        length: sequence, "mixed_precision": PRECISIONS[case.training.precision.name],
    }
    back = {key: None for key in (*sorted(RESET), "comm_overlap") if key not in decided}
    experts: dict[str, object] = {"model.moe_token_dispatcher_type": "alltoall"} if case.model.is_moe else {}
    peft: dict[str, object] = {"peft.dim": case.training.lora.rank} if case.training.lora else {}
    return {**back, **decided, **fixed, **experts, **peft}


def _mode(case: Case) -> str:
    """The mode of main's script."""
    return case.training.task


def recipe_name(case: Case, release: str) -> str:
    """The recipe of a model as Bridge spells it: ``llama3-70b`` is ``llama3_70b_pretrain_config`` in 0.3.

    It may not exist: the README says so.
    """
    stem = case.model.name.replace(".", "").replace("-", "_")
    return f"{stem}_{MODES[case.training.task]}_config" if release == "0.3" else stem


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    fsdp = layout.zero_stage >= 2
    connections = Variable(name="CUDA_DEVICE_MAX_CONNECTIONS", value="8" if fsdp else "1",
                           reason="FSDP must not have 1" if fsdp else "collectives start before the GEMMs behind them")
    return Manual(
        title=f"Megatron-Bridge {release}",
        needs="Python 3.12 and Megatron-Bridge's container; its recipes take mock data until a data set is given.",
        commands=start_commands(layout, case, before="BRIDGE_PATH=/path/to/Megatron-Bridge"),
        blanks=(
            Blank(name="BRIDGE_PATH", default=Shell("$PWD"), what=f"checkout of Megatron-Bridge at {release}"),
            Blank(name="RECIPE", default=recipe_name(case, release),
                  what=f"recipe of Megatron-Bridge to start from, for {hub_name(case.model)}"),
        ),
        variables=(
            connections,
            Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True", reason="less fragmentation"),
        ),
        off=(
            Switch(name="comm_overlap", risk="exact", what="would decide overlap anew; the plan's own fields stand instead of it"),
            Switch(name="model.cuda_graph_impl", risk="equivalent", what="CUDA graphs: memory for captured buffers"),
            Switch(name="model.moe_shared_expert_overlap", risk="exact", what="shared experts beside the dispatcher"),
        ),
        probe=_PROBE,
        assumed=("Learning rate, data, tokenizer and checkpoints are those of the recipe.",
                 "Fields that a recipe sets and no override names stay as the recipe has them."),
    )


_PROBE = (
    "Megatron-Bridge has no probe of its own. Megatron-LM's (`--fake-process-group`, core 0.16) runs one rank with the same "
    "degrees: `meshwright export PLAN --to megatron --out DIR` writes it. Or run 3 steps with fewer layers, read `max "
    "allocated` in the log, and give it to `meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES`."
)

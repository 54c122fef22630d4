"""A plan as a launch of Megatron-Bridge's own recipe script, with one override for every field that the plan decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, hydra, word
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.bridge.automatic import is_automatic
from meshwright.frameworks.bridge.overrides import overrides
from meshwright.frameworks.bridge.program import PATH, program, reason
from meshwright.frameworks.bridge.recipes import Recipe, packs, recipe_of, spelled
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
)

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``launch.sh`` and ``README.md``, and ``train.py`` where ``run_recipe`` cannot say the plan."""
    recipe, manual = recipe_of(case, release), _manual(case, layout, release, options)
    section = recipe.section if recipe else "model"
    words = [f"{spelled(key, section)}={word(hydra(value))}" for key, value in overrides(case, layout, release, options).items()]
    own = (program(case, release),) if reason(case, release) else ()
    start = (f'"$HERE/{PATH}"',) if own or recipe is None else ("scripts/training/run_recipe.py", _selected(recipe, case, release))
    launch = Launch(checkout="BRIDGE_PATH", command=(*TORCHRUN, *start, *words, *_places(case, recipe, options)))
    return (*own, launch_script(case, layout, options, manual, launch), readme(case, layout, options, manual))


def _selected(recipe: Recipe, case: Case, release: str) -> str:
    """How ``run_recipe`` is told the recipe."""
    task = case.training.task
    return f"--recipe {recipe.function(task)}" if release == "0.3" else f"--model {recipe.stem} --mode {task}"


def _places(case: Case, recipe: Recipe | None, options: Options) -> list[str]:
    """Where a run keeps its own, a folder for each plan, and finds weights to start from and a tokenizer, if no recipe has one.

    A probe keeps nothing, for a second one would go on behind its last step.
    """
    own = "$HERE/checkpoints"
    places = {} if options.is_probe else {"checkpoint.save": own, "checkpoint.load": own}
    places |= {"logger.tensorboard_dir": "$HERE/tb_logs"}
    if case.training.task != "pretrain":
        places |= {"checkpoint.pretrained_checkpoint": "$PRETRAINED_CHECKPOINT"}
        places |= {} if recipe else {"tokenizer.tokenizer_model": "$TOKENIZER"}
    quoted = {key: Shell(f"'{value}'") for key, value in places.items()}
    kept = ["checkpoint.save=null", "checkpoint.load=null"] if options.is_probe else []
    return [*kept, *(f"{key}={word(value)}" for key, value in quoted.items())]


def _manual(case: Case, layout: Layout, release: str, options: Options) -> Manual:
    """What the README and the launch script say."""
    fsdp, recipe = layout.zero_stage >= 2, recipe_of(case, release)
    connections = Variable(name="CUDA_DEVICE_MAX_CONNECTIONS", value="8" if fsdp else "1",
                           reason="FSDP must not have 1" if fsdp else "collectives start before the GEMMs behind them")
    return Manual(
        title=f"Megatron-Bridge {release}",
        needs=f"Megatron-Bridge's container ({PYTHONS[release]}) and a checkout with its submodule. {_data(case, recipe)}",
        commands=start_commands(layout, case, before="BRIDGE_PATH=/path/to/Megatron-Bridge"),
        blanks=(
            Blank(name="BRIDGE_PATH", default=Shell("$PWD"), what=f"checkout of Megatron-Bridge at {CHECKOUTS[release]}"),
            *_tuning_blanks(case, recipe),
        ),
        variables=(
            connections,
            Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True", reason="less fragmentation"),
        ),
        off=(
            Switch(name="comm_overlap", risk="exact", what="would decide overlap anew; the plan's own fields stand instead of it"),
            Switch(name="model.cuda_graph_impl", risk="equivalent", what="CUDA graphs: memory for captured buffers"),
            Switch(name="model.moe_shared_expert_overlap", risk="exact", what="shared experts beside the dispatcher"),
            Switch(name="model.moe_token_dispatcher_type=flex", risk="equivalent", what="DeepEP or HybridEP instead of all-to-all"),
            Switch(name="optimizer.use_precision_aware_optimizer", risk="approximate",
                   what="moments and gradients of some recipes in BF16; the plan's optimizer says their types"),
        ),
        probe=_PROBE, assumed=_assumed(case, release, options),
    )


def _data(case: Case, recipe: Recipe | None) -> str:
    """Which data a run takes as it stands."""
    if case.training.task == "pretrain":
        return "Data are made up until a data set is given."
    tokenizer = "the tokenizer of the recipe" if recipe else "the tokenizer"
    return f"Tuning takes no made-up data: SQuAD and {tokenizer} come from the hub, if words behind `launch.sh` say no others."


def _tuning_blanks(case: Case, recipe: Recipe | None) -> tuple[Blank, ...]:
    """What tuning starts from."""
    if case.training.task == "pretrain":
        return ()
    name = hub_name(case.model)
    weights = Blank(name="PRETRAINED_CHECKPOINT", default="", what=f"absolute path of a Megatron checkpoint of {name}")
    tokenizer = Blank(name="TOKENIZER", default="", what=f"tokenizer of the hub or a folder, that of {name}")
    return (weights,) if recipe else (weights, tokenizer)


def _assumed(case: Case, release: str, options: Options) -> tuple[str, ...]:
    """What the files leave to Bridge, and where they stand for something."""
    said = [
        "No checkpoint is saved or loaded; logs stand in `tb_logs/` beside `launch.sh`." if options.is_probe else
        "Checkpoints and logs of this plan stand in `checkpoints/` and `tb_logs/` beside `launch.sh`: a second run goes on there.",
        "Words behind `launch.sh` are overrides too, and win.",
        "The warm-up is a tenth of a short run, 2,000 steps of a long one; learning rate and its decay are Bridge's.",
    ]
    if why := reason(case, release):
        said.append(f"`{PATH}` stands for `scripts/training/run_recipe.py`: {why}.")
    if is_automatic(case.model, release) and not recipe_of(case, release):
        said.append(
            f"The shape of the model is that of {hub_name(case.model)} on the hub (`AutoBridge`); a folder with its `config.json` "
            f"does as well in `{PATH}`."
        )
        if case.model.tower is not None:
            said.append(
                "Images are made up, in number and size so that they fill the planned share of each sequence; the processor of "
                f"{hub_name(case.model)} cuts them. Bridge's own recipes of towers overlap neither gradients nor gathers."
            )
        if any(kind.attention and kind.mixer for kind in case.model.kinds):
            said.append(
                "Bridge's class of this model runs attention unfused (`transformer_impl: local`): its score matrices and what they "
                "cost are in no figure of this plan."
            )
    elif recipe_of(case, release):
        said.append("Fields that the recipe sets and no override names stay as the recipe has them.")
    else:
        said.append(
            "Norm epsilon, initialisation, scaling of rotary positions and the weight of balancing losses are Bridge's defaults."
        )
    if case.training.task != "pretrain":
        said.append("Samples are packed to sequences of the planned length, one in a micro-batch." if packs(case, release)
                    else "Bridge does not pack this model's samples: each is padded to the planned length.")
    return tuple(said)


PYTHONS = {"0.3": "Python 3.10 or later", "main": "Python 3.12"}
CHECKOUTS = {"0.3": "tag v0.3.1", "main": "067f987"}
_PROBE = (
    "Megatron-Bridge has no probe of its own. Megatron-LM's (`--fake-process-group`, core 0.16) runs one rank with the same "
    "degrees: `meshwright export PLAN --to megatron --out DIR` writes it. Or run 3 steps with fewer layers, read `max "
    "allocated` in the log, and give it to `meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES`."
)

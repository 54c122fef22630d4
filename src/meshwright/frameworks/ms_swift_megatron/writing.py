"""A layout as a launch script of ms-swift: ``megatron pt`` or ``megatron sft`` with every setting as a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, Written, flags
from meshwright.frameworks.adapters import is_everywhere
from meshwright.frameworks.bridge.adapters import modules_of
from meshwright.frameworks.hub import hub_name, hub_words
from meshwright.frameworks.llama_factory_hf.writing import variables_of as launcher_variables
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
from meshwright.frameworks.megatron.precision_arguments import FP8_RECIPES, MOMENTS
from meshwright.frameworks.ms_swift_megatron.deciding import decide
from meshwright.frameworks.ms_swift_megatron.limits import is_padded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.training import Lora
    from meshwright.frameworks.base import File, Options

NEVER_SAVED = 1_000_000
"""``save_steps`` beyond every short run: there is no switch."""
_TUNING = "AI-ModelScope/alpaca-gpt4-data-en"
_DATA = {"pretrain": "swift/chinese-c4#50000", "sft": _TUNING, "lora": _TUNING}
"""Sets of ModelScope that its own examples and documents train on."""
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``launch.sh`` and ``README.md``."""
    manual = _manual(case, layout, release)
    verb = "pt" if case.training.task == "pretrain" else "sft"
    settings, without = arguments(case, layout, release, options), options.launch.without
    lines = flags({f"--{name}": _spelled(value) for name, value in settings.items() if name not in without})
    command = (Written(f'env NODE_RANK="$NODE" megatron {verb}'), *lines)
    return (
        launch_script(case, layout, options, manual, Launch(command=command)),
        readme(case, layout, options, manual),
    )


def _spelled(value: object) -> object:
    """A value as the parser takes it: truth values are words."""
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return str(value).lower() if isinstance(value, bool) else value


def _modules(lora: Lora, case: Case) -> object:
    """The modules that carry adapters."""
    return "all-linear" if is_everywhere(lora) else modules_of(lora, case.model)


def arguments(case: Case, layout: Layout, release: str, options: Options) -> dict[str, object]:
    """Every setting of a run by its name."""
    pretrains, lora = case.training.task == "pretrain", case.training.lora
    padded = is_padded(case, layout)
    packs = not padded and (pretrains or case.batch.packing is not None)
    return {
        "model": Shell("$MODEL"), "dataset": Shell("$DATASET"), "output_dir": Shell("$OUTPUT_DIR"),
        "tuner_type": "lora" if lora else "full",
        **({"lora_rank": lora.rank, "target_modules": _modules(lora, case)} if lora else {}),
        "max_length": case.batch.sequence_tokens, "packing": packs, **({"padding_free": False} if padded else {}),
        **({"truncation_strategy": "split"} if pretrains else {}),
        "global_batch_size": case.batch.global_batch_sequences, **decide(case, layout, release),
        **_mtp(case), **_numbers(case), **_kernels(case), **_optimizer(case), **options.launch.keys,
        "train_iters": train_steps(case, options), "logging_steps": 1, "eval_iters": 0, "save_steps": NEVER_SAVED,
        "split_dataset_ratio": 0, "lr": Shell("$LEARNING_RATE"), "report_to": "tensorboard",
    }


def _mtp(case: Case) -> dict[str, object]:
    """Multi-token prediction, which is never read from the model's own configuration."""
    if not case.model.num_mtp_layers:
        return {}
    return {"mtp_num_layers": case.model.mtp_passes, **({"mtp_shared_weights": True} if case.model.shares_mtp else {})}


def _numbers(case: Case) -> Mapping[str, object]:
    """Number formats of weights and GEMMs."""
    precision = case.training.precision
    found: dict[str, object] = {precision.base_dtype: True}
    if recipe := FP8_RECIPES.get(precision.name):
        found |= {"fp8_format": recipe[0], "fp8_recipe": recipe[1]}
        if precision.gather_bytes < 2:
            found["fp8_param_gather"] = True
    if precision.name == "nvfp4":
        found |= {"fp4_format": "e2m1", "fp4_recipe": "nvfp4"}
    if precision.base_dtype == "fp16":
        found["accumulate_allreduce_grads_in_fp32"] = True
    return found


def _kernels(case: Case) -> Mapping[str, object]:
    """Kernels that the prediction counts on and that are no default here."""
    return {
        "apply_rope_fusion": True,
        **({"moe_grouped_gemm": True, "moe_permute_fusion": True, "moe_token_dispatcher_type": "alltoall"}
           if case.model.is_moe else {}),
    }


def _optimizer(case: Case) -> Mapping[str, object]:
    """The optimizer and the types of its state."""
    name = case.training.optimizer.name
    if name not in MOMENTS:
        return {"optimizer": name}
    moment = MOMENTS[name]
    return {
        "optimizer": "adam", **({"exp_avg_dtype": moment, "exp_avg_sq_dtype": moment} if moment else {}),
        **({"main_params_dtype": "fp16"} if case.training.precision.master_bytes == 2 else {}),
    }


def _manual(case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    nodes, processes = (each for each in launcher_variables(case, layout) if each.name != "FORCE_TORCHRUN")
    sharded = layout.zero_stage >= 2
    connections = Variable(
        name=_CONNECTIONS, value="32" if sharded else "1",
        reason="Megatron-FSDP refuses 1, which ms-swift sets where nothing is set" if sharded
        else "collectives start before the GEMMs behind them",
    )
    return Manual(
        title=f"ms-swift (Megatron) {release}",
        needs="ms-swift 4.6 (3602360a) or later with megatron-core 0.16 to 0.19, mcore-bridge and Transformer Engine. It trains "
              f"{hub_words(case.model)}, from ModelScope unless USE_HF=1.",
        commands=start_commands(layout, case),
        blanks=(
            Blank(name="MODEL", default=hub_name(case.model), what="weights to start from"),
            Blank(name="DATASET", default=_DATA[case.training.task], what="a name, or a file of your own"),
            Blank(name="OUTPUT_DIR", default=Shell("$HERE/output"), what="one for each plan"),
            Blank(name="LEARNING_RATE", default="1e-4" if case.training.lora else "1e-5", what="Meshwright does not choose it"),
        ),
        variables=(
            nodes, processes, connections,
            Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True",
                     reason="less fragmentation: reserved memory stays near allocated memory"),
        ),
        off=(
            Switch(name="moe_token_dispatcher_type flex, moe_enable_deepep", risk="equivalent",
                   what="DeepEP instead of all-to-all"),
            Switch(name="cross_entropy_fusion_impl te", risk="equivalent", what="the loss in place on the logits"),
        ),
        assumed=_assumed(case, layout),
    )


def _assumed(case: Case, layout: Layout) -> tuple[str, ...]:
    """Where the files stand for something that they do not say exactly."""
    found = [
        "Priced as Megatron-LM with Transformer Engine (`megatron-te`), by its calibration: no run of ms-swift is among the "
        "evidence.",
        unsaved("save_steps") + " The last step is saved all the same, as ms-swift always does.",
    ]
    if is_padded(case, layout):
        found.append("Its attention takes no samples laid behind each other: they are padded (`padding_free false`).")
    elif case.training.task == "pretrain":
        found.append(f"Documents are cut and packed to {case.batch.sequence_tokens} tokens, between which no attention passes.")
    elif case.batch.packing is None:
        found.append(f"Every sample is predicted as {case.batch.sequence_tokens} tokens; shorter ones are not padded.")
    if case.training.lora and case.model.is_moe:
        found.append("`all-linear` puts adapters at the experts too, which the prediction does not count.")
    return tuple(found)

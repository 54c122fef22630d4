"""A layout as MindFormers 2.1's PyNative YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.domain.layout import Full, Overlap, Selective
from meshwright.frameworks.ascend.arithmetic import inner_ranks
from meshwright.frameworks.ascend.launch import mindspore_variables, msrun_files, simulation_words
from meshwright.frameworks.ascend.stages import counts_of, normal_stages, split_of
from meshwright.frameworks.ascend.text import nested
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.manual import Blank, Manual, Switch, start_commands, task_variables, train_steps, unsaved
from meshwright.frameworks.mindformers.models import ARCHITECTURES, model_section
from meshwright.frameworks.mindformers.ranges import first_ids, ids_text, stage_ranges
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

METHODS = {"ring": "colossal", "ulysses": "ulysses", "hybrid": "hybrid"}
SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved_1f1b", "gpipe": "gpipe"}
PATHS = {
    "core_attn": ("self_attention.core_attention",),
    "layernorm": ("input_layernorm", "pre_mlp_layernorm"),
    "mlp": ("mlp",),
}
"""Module of selective recomputation -> paths within a layer that recompute the same tensors."""
UNSPOKEN = (
    "overlap of gradients and parameters: FSDP always overlaps them",
    "the Ulysses degree of hybrid context parallelism: the ranks of one scale-up domain",
)


def _stages(plan: Planned) -> object:
    """Layers by stage: ``auto`` where all have as many, else ranges of ids."""
    split = split_of(plan.case, plan.layout)
    even = plan.layers % (plan.pp * plan.vp) == 0 and len({count for row in split for count in row}) == 1
    return "auto" if even else stage_ranges(split)


KEYS = (
    Says("parallelism.tensor_parallel", "tensor_parallel"),
    Says("parallelism.sequence_parallel", "sequence_parallel"),
    Says("parallelism.context_parallel", "context_parallel"),
    Says("parallelism.pipeline_parallel", "pipeline_parallel"),
    Says("parallelism.pipeline_parallel_schedule", lambda plan: SCHEDULES[plan.schedule]),
    Says("parallelism.pipeline_parallel_interleave_num", "virtual_stages"),
    Says("parallelism.pipeline_parallel_layers_per_stage", _stages),
    Says("parallelism.pipeline_parallel_overlap_p2p", "overlap.point_to_point", default=False),
    Says("parallelism.expert_parallel", "expert_parallel"),
    Says("parallelism.enable_mc2", lambda plan: plan.layout.overlap.tensor and plan.tp > 1),
)
BATCH = (
    Says("training.local_batch_size", "microbatch_sequences"),
    Says("training.global_batch_size", lambda plan: plan.batch),
    Says("parallelism.context_parallel_method", "context_kind", METHODS, when=lambda plan: plan.cp > 1),
    Says("parallelism.ulysses_degree_in_cp", lambda plan: inner_ranks(plan.case, plan.layout),
         when=lambda plan: plan.cp > 1 and plan.kind == "hybrid"),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    plan = Planned(case, layout, release)
    shards = {f"parallelism.{key}": value for key, value in sharding(layout).items()}
    return decided(KEYS, plan) | shards | decided(BATCH, plan) | _recompute(case, layout)


def sharding(layout: Layout) -> dict[str, object]:
    """FSDP over ``data_parallel_shard`` x cp ranks, or of the dense weights over fewer; never resharding is ZeRO-2."""
    size, cp = layout.optimizer_shards, layout.context_parallel
    if size == layout.data_parallel * cp:
        degrees: dict[str, object] = {"data_parallel_shard": -1}
    elif size % cp == 0:
        degrees = {"data_parallel_shard": size // cp}
    else:
        degrees = {"data_parallel_shard": -1, "dense_fsdp_shard_size": size}
    return degrees | {"reshard_after_forward_policy": "never" if layout.zero_stage < 3 else "always"}


def _recompute(case: Case, layout: Layout) -> dict[str, object]:
    """Layers by their ids, or modules of all layers."""
    model = case.model
    everything = ids_text(range(model.num_layers + model.num_mtp_layers))
    if isinstance(layout.recompute, Full):
        if layout.recompute.layers is None:
            return {"recompute.mode": "full", "recompute.full_recompute_layer": everything}
        split = split_of(case, layout)
        return {
            "recompute.mode": "full",
            "recompute.full_recompute_layer": ids_text(first_ids(counts_of(layout.recompute, split), split)),
        }
    if isinstance(layout.recompute, Selective):
        paths = [path for module in layout.recompute.modules for path in PATHS[module]]
        return {"recompute.mode": "select", "recompute.select_module": dict.fromkeys(paths, everything)}
    return {"recompute.mode": "None"}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as its YAML says it."""
    overlap = Overlap(
        gradient_reduce=True, parameter_gather=True, tensor=layout.overlap.tensor and layout.tensor_parallel > 1,
        point_to_point=layout.overlap.point_to_point, expert=False,
    )
    recompute = layout.recompute
    if isinstance(recompute, Selective):
        recompute = Selective(modules=tuple(sorted(set(recompute.modules))))
    kind = layout.context_kind if layout.context_parallel > 1 else "ring"
    return normal_stages(case, replace(layout, overlap=overlap, context_kind=kind, recompute=recompute))


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``config.yaml``, ``launch.sh``, ``probe.sh`` and ``README.md``."""
    return msrun_files(
        case, layout, options, _manual(case, layout, release, options), document=_config(case, layout, release, options),
        checkout="MINDFORMERS_PATH", command='run_mindformer.py --config "$HERE/config.yaml"',
    )


def _config(case: Case, layout: Layout, release: str, options: Options) -> dict[str, object]:
    """The whole document, section by section."""
    settings: dict[str, object] = {
        "run_mode": "train",
        "context.mode": 1, "context.device_target": "Ascend",
        "training.steps": train_steps(case, options), "training.seed": 42, "training.max_norm": 1.0,
        **decide(case, layout, release),
        "optimizer.type": "AdamW", "optimizer.weight_decay": 0.1,
        "lr_scheduler.type": "ConstantWarmUpLR",
        "train_dataset.dataloader.type": "BlendedMegatronDatasetDataLoader",
        "checkpoint.enable_save": False,
        **options.launch.keys,
    }
    document = nested({key: value for key, value in settings.items() if key != "recompute.select_module"})
    if "recompute.select_module" in settings:  # its keys hold dots
        document["recompute"]["select_module"] = settings["recompute.select_module"]  # type: ignore[index]
    return document | {"model": model_section(case, layout)}


def _manual(case: Case, layout: Layout, release: str, options: Options) -> Manual:
    """What the README and the scripts say."""
    known = case.model.architecture in ARCHITECTURES
    overlap = Switch(name="parallelism.pipeline_parallel_overlap_b_f", risk="equivalent",
                     what="runs a forward beside a backward to hide the experts' exchange; needs interleaved chunks")
    return Manual(
        title=f"MindFormers {release} (PyNative)",
        needs="MindFormers 2.1, MindSpore with hyper_parallel, CANN.",
        commands=start_commands(layout, case, before="MINDFORMERS_PATH=/path/to/mindformers"),
        blanks=(
            Blank(name="MINDFORMERS_PATH", default=Shell("$PWD"), what=f"checkout of MindFormers {release}"),
            Blank(name="train_dataset.dataloader", default="", what="in config.yaml: the data set; its paths are not guessed"),
            Blank(name="lr_scheduler.learning_rate", default="1e-05", what="in config.yaml: MindFormers' default until you set it"),
            *(
                ()
                if known
                else (
                    Blank(
                        name="model.model_type, model.architectures",
                        default="",
                        what="in config.yaml: the model's class in MindFormers",
                    ),
                )
            ),
        ),
        variables=(*task_variables(case), *mindspore_variables()),
        off=(overlap,) if case.model.is_moe and layout.virtual_stages > 1 else (),
        probe=simulation_words(layout, options, "MINDFORMERS_PATH=/path/to/mindformers", mock=True),
        assumed=(
            "`data_parallel_shard_strategy` is left out: 2.1.0 never reads it; the reshard policy decides "
            "between ZeRO-2 and ZeRO-3.", unsaved("checkpoint.enable_save", "output_dir"),
            "PyNative classes of 2.1.0 are those of Qwen3, DeepSeek-V3 and DeepSeek-V4; other models need one of their own.",
        ),
    )

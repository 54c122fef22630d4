"""A layout as MindFormers' graph-mode YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.domain.layout import Overlap
from meshwright.frameworks.ascend.arithmetic import inner_ranks
from meshwright.frameworks.ascend.launch import mindspore_variables, msrun_files, simulation_words
from meshwright.frameworks.ascend.recompute_lists import lists_of_parts, offsets, parts_of, recomputed_modules
from meshwright.frameworks.ascend.stages import Split, flat_or_nested, normal_stages, split_of
from meshwright.frameworks.ascend.text import nested
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.manual import Blank, Manual, Switch, start_commands, task_variables, train_steps
from meshwright.frameworks.mindformers.models import model_section
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

ALGORITHMS = {"ring": "colossalai_cp", "ulysses": "ulysses_cp", "hybrid": "hybrid_cp"}
UNSPOKEN = (
    "overlap: the graph compiler decides (parallel_speed_up.json)",
    "the Ulysses degree of hybrid context parallelism: the ranks of one scale-up domain",
)
OVERLAP = Overlap(gradient_reduce=True, parameter_gather=True, tensor=False, point_to_point=True, expert=False)


WORDS = {"select_recompute": "mlp_act", "select_comm_recompute": "comm"}
"""Key of ``recompute_config`` -> what its default patterns recompute, with flash attention."""


KEYS = (
    Says("parallel_config.data_parallel", "data_parallel"),
    Says("parallel_config.model_parallel", "tensor_parallel"),
    Says("parallel_config.pipeline_stage", "pipeline_parallel"),
    Says("parallel_config.micro_batch_num", lambda plan: plan.microbatches if plan.pp > 1 else 1),
    Says("parallel_config.context_parallel", "context_parallel"),
    Says("parallel_config.expert_parallel", "expert_parallel"),
    Says("parallel_config.use_seq_parallel", "sequence_parallel"),
    Says("runner_config.batch_size", "microbatch_sequences"),
    Says("runner_config.gradient_accumulation_steps", lambda plan: 1 if plan.pp > 1 else plan.microbatches),
    Says("parallel.enable_parallel_optimizer", lambda plan: plan.zero > 0),
)
CONTEXT = (
    Says("parallel_config.context_parallel_algo", "context_kind", ALGORITHMS, when=lambda plan: plan.cp > 1),
    Says("parallel_config.ulysses_degree_in_cp", lambda plan: inner_ranks(plan.case, plan.layout),
         when=lambda plan: plan.cp > 1 and plan.kind == "hybrid"),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    plan, pp, vp = Planned(case, layout, release), layout.pipeline_parallel, layout.virtual_stages
    split = split_of(case, layout)
    settings = decided(KEYS, plan) | _recompute(layout, split)
    extra = offsets(split)
    if any(map(any, extra)):
        settings["model.model_config.offset"] = flat_or_nested(extra, vp)
    settings |= decided(CONTEXT, plan)
    if vp > 1:
        settings |= {"model.model_config.pp_interleave_num": vp, "parallel.pipeline_config.pipeline_interleave": True}
    if pp > 1 and (vp > 1 or layout.schedule == "gpipe"):
        settings["parallel.pipeline_config.pipeline_scheduler"] = "gpipe" if layout.schedule == "gpipe" else "1f1b"
    if layout.zero_stage > 0:
        ranks = layout.data_parallel * layout.context_parallel
        settings |= {
            "parallel.parallel_optimizer_config.optimizer_level": f"level{layout.zero_stage}",
            "parallel.parallel_optimizer_config.gradient_accumulation_shard": layout.zero_stage > 1,
        }
        if layout.optimizer_shards != ranks:
            settings["parallel.parallel_optimizer_config.optimizer_weight_shard_size"] = layout.optimizer_shards
    if layout.offload:
        settings["optimizer.swap"] = True
    return settings


def _recompute(layout: Layout, split: Split) -> dict[str, object]:
    """True, False, or counts by stage and chunk: of full layers, and for each thing that is recomputed apart."""
    full, lists = lists_of_parts(parts_of(layout.recompute, split), WORDS.values(), split, behind_full=False)
    asked = recomputed_modules(layout.recompute)
    return {
        "recompute_config.recompute": _said(full, split),
        **{f"recompute_config.{key}": _said(lists[module], split) for key, module in WORDS.items() if module in asked},
    }


def _said(counts: Split, split: Split) -> object:
    """A list as it stands in a file: False where no layer is in it, True where all are."""
    if not any(map(any, counts)):
        return False
    return True if counts == split else flat_or_nested(counts, len(split))


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as its YAML says it."""
    kind = layout.context_kind if layout.context_parallel > 1 else "ring"
    return normal_stages(case, replace(layout, overlap=OVERLAP, context_kind=kind))


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``config.yaml``, ``launch.sh``, ``probe.sh`` and ``README.md``."""
    return msrun_files(
        case, layout, options, _manual(case, layout, release, options), document=_config(case, layout, release, options),
        checkout="MINDFORMERS_PATH", command='run_mindformer.py --config "$HERE/config.yaml"',
    )


def _config(case: Case, layout: Layout, release: str, options: Options) -> dict[str, object]:
    """The whole document, section by section."""
    settings: dict[str, object] = {
        "seed": 42, "run_mode": "train", "use_parallel": True, "use_legacy": False,
        "trainer.type": "CausalLanguageModelingTrainer", "trainer.model_name": case.model.name,
        "context.mode": 0, "context.device_target": "Ascend",
        "context.max_device_memory": f"{int(case.capacity_bytes / 2**30)}GB",
        "runner_config.epochs": 1, "runner_config.stop_step": train_steps(case, options), "runner_config.sink_size": 1,
        "parallel.parallel_mode": 1, "parallel.full_batch": True, "parallel.dataset_strategy": "full_batch",
        "parallel.enable_alltoall": case.model.is_moe,
        "parallel_config.vocab_emb_dp": layout.tensor_parallel == 1 and layout.pipeline_parallel == 1,
        "parallel_config.gradient_aggregation_group": 4,
        **decide(case, layout, release),
        "optimizer.type": "AdamW", "optimizer.weight_decay": 0.1,
        "runner_wrapper.type": "MFTrainOneStepCell", "runner_wrapper.scale_sense": 1.0, "runner_wrapper.use_clip_grad": True,
    }
    model = {f"model.model_config.{key}": value for key, value in model_section(case, layout).items()}
    return nested(model | settings) | {"callbacks": [{"type": "MFLossMonitor"}]}


def _manual(case: Case, layout: Layout, release: str, options: Options) -> Manual:
    """What the README and the scripts say."""
    select = Switch(name="recompute_config.select_recompute", risk="equivalent",
                    what="recomputes the product and the activation of the MLP (mlp.mul, mlp.activation_func.silu)")
    comm = Switch(
        name="recompute_config.select_comm_recompute",
        risk="equivalent",
        what="communicates the norms' outputs again in the backward pass",
    )
    return Manual(
        title="MindFormers (graph mode)",
        needs="MindFormers, MindSpore, CANN.",
        commands=start_commands(layout, case, before="MINDFORMERS_PATH=/path/to/mindformers"),
        blanks=(
            Blank(name="MINDFORMERS_PATH", default=Shell("$PWD"), what="checkout of MindFormers"),
            Blank(name="train_dataset.data_loader", default="", what="in config.yaml: the data set with its loader"),
            Blank(name="lr_schedule.learning_rate", default="", what="in config.yaml: learning rate and its course"),
        ),
        variables=(*task_variables(case), *mindspore_variables()),
        off=tuple(
            switch for switch, module, able in ((select, "mlp_act", True), (comm, "comm", layout.sequence_parallel))
            if able and module not in recomputed_modules(layout.recompute)
        ),
        probe=simulation_words(layout, options, "MINDFORMERS_PATH=/path/to/mindformers", mock=False),
        assumed=(
            *(("`offset` is added to the average number of layers of a stage; lists are [chunk][stage].",)
              if layout.pipeline_parallel > 1 else ()),
            "No checkpoint is saved or loaded: no callback of `config.yaml` does; give each plan an `output_dir` of its own.",
        ),
    )

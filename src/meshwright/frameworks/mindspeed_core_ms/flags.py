"""MindSpeed-Core-MS's branch br_master: Megatron-like flags, lists by ``[stage][chunk]``, ``--zero_shard_size``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, flags
from meshwright.domain.layout import Full, Layout, Overlap, Selective
from meshwright.frameworks.ascend.launch import MSRUN, mindspore_variables, simulation, simulation_words
from meshwright.frameworks.ascend.stages import (
    Split,
    normal_stages,
    split_of,
    transposed,
)
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.keys import NOT, Says, decided, switched_on
from meshwright.frameworks.manual import (
    Blank,
    Launch,
    Manual,
    launch_script,
    readme,
    start_commands,
    task_variables,
    train_steps,
    unsaved,
)
from meshwright.frameworks.mindspeed_llm.model_flags import model_flags
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case

ALGORITHMS = {"ring": "megatron_cp_algo", "ulysses": "ulysses_cp_algo"}
"""The hybrid kind is out of reach: the choice is spelt ``hybarid_cp_algo``, the code tests ``hybrid_cp_algo``."""
UNSPOKEN = ("overlap: without the DDP wrapper (ZeRO 2) no communication of gradients or parameters overlaps",)


KEYS = (
    Says("--tensor-model-parallel-size", "tensor_parallel"),
    Says("--pipeline-model-parallel-size", "pipeline_parallel"),
    Says("--context-parallel-size", "context_parallel"),
    Says("--expert-model-parallel-size", "expert_parallel"),
    Says("--micro-batch-size", "microbatch_sequences"),
    Says("--global-batch-size", lambda plan: plan.batch),
    Says("--sequence-parallel", "sequence_parallel"),
    Says("--use-distributed-optimizer", lambda plan: plan.zero in {1, 3}),
    Says("--overlap-grad-reduce", "overlap.gradient_reduce", default=False, when=lambda plan: plan.zero != 2),
    Says("--overlap-param-gather", "overlap.parameter_gather", default=False, when=lambda plan: plan.zero in {1, 3}),
    Says("--no-overlap-p2p-communication", "overlap.point_to_point", NOT),
    Says("--context-parallel-algo", "context_kind", ALGORITHMS, "ulysses", when=lambda plan: plan.cp > 1),
    Says("--virtual-pipeline-model-parallel-size", "virtual_stages", when=lambda plan: plan.vp > 1),
)


def own_split(num_layers: int, stages: int, chunks: int) -> Split:
    """Layers where no list is given: rounded up everywhere, the last chunk of the last stage is short.

    Source: mindspeed_ms/legacy/model/utils.py ``get_num_layer_list`` of br_master.
    """
    each = -(-num_layers // (stages * chunks))
    rows = [[each] * stages for _ in range(chunks)]
    rows[-1][-1] -= each * stages * chunks - num_layers
    return tuple(map(tuple, rows))


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The flags that express a layout."""
    found = switched_on(decided(KEYS, Planned(case, layout, release)))
    split = split_of(case, layout)
    if split != own_split(case.model.num_layers, layout.pipeline_parallel, layout.virtual_stages):
        lists = transposed(split) if layout.virtual_stages > 1 else split[0]
        found["--num-layer-list"] = json.dumps(lists)
    if layout.zero_stage >= 2:
        found["--zero-level"] = f"z{layout.zero_stage}"
    if 1 < layout.optimizer_shards < layout.data_parallel * layout.context_parallel:
        found["--zero_shard_size"] = layout.optimizer_shards
    if isinstance(layout.recompute, Full):
        counts = layout.recompute.layers
        method = {"--recompute-method": "uniform", "--recompute-num-layers": 1} if counts is None else {
            "--recompute-method": "block", "--recompute-num-layers": counts}
        found |= {"--recompute-granularity": "full", **method}
    elif isinstance(layout.recompute, Selective):
        found["--recompute-granularity"] = "selective"
    return found


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as its flags say it."""
    wrapped, distributed = layout.zero_stage != 2, layout.zero_stage in {1, 3}
    overlap = Overlap(
        gradient_reduce=wrapped and layout.overlap.gradient_reduce,
        parameter_gather=distributed and layout.overlap.parameter_gather,
        tensor=False,
        point_to_point=layout.overlap.point_to_point,
        expert=False,
    )
    kind = layout.context_kind if layout.context_parallel > 1 else "ring"
    return normal_stages(case, replace(layout, overlap=overlap, context_kind=kind))


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``launch.sh``, ``probe.sh`` and ``README.md``."""
    from meshwright.frameworks.mindspeed_core_ms import surface
    known = surface().at(release)
    model = {flag: value for flag, value in model_flags(case).items() if flag in known}
    training = {
        f"--{case.training.precision.name}": True, "--train-iters": train_steps(case, options), "--weight-decay": 0.1,
        "--clip-grad": 1.0, "--log-interval": 1, "--eval-iters": 0, "--distributed-backend": "hccl",
        "--no-gradient-accumulation-fusion": True,
    }
    lines = (
        *flags(model | dict(decide(case, layout, release)) | training | dict(options.launch.keys)),
        '--data-path "$DATA" --split 100,0,0',
        '--tokenizer-type PretrainedFromHF --tokenizer-name-or-path "$TOKENIZER"',
        '--lr "$LR"',
    )
    before = "MINDSPEED_MS_PATH=/path/to/MindSpeed-Core-MS DATA=... TOKENIZER=... LR=..."
    manual = Manual(
        title=f"MindSpeed-Core-MS {release}", needs="MindSpeed-Core-MS, MindSpore, CANN.",
        commands=start_commands(layout, case, before=before),
        blanks=(
            Blank(name="MINDSPEED_MS_PATH", default=Shell("$PWD"), what=f"checkout of MindSpeed-Core-MS at {release}"),
            Blank(name="DATA", default="", what="prefix of the preprocessed data"),
            Blank(name="TOKENIZER", default="", what="folder of the tokenizer"),
            Blank(name="LR", default="1e-5", what="learning rate: choose your own"),
        ),
        variables=(*task_variables(case), *mindspore_variables()),
        probe=simulation_words(layout, options, before, mock=True),
        assumed=(
            *(("Lists by stage are `[stage][virtual stage]`, as br_master reads them; r0.1.0 reads the transpose.",
               "Recomputed layers by stage need `--yaml-cfg`; flags say one number for all.") * (layout.pipeline_parallel > 1)),
            unsaved("--save", "--load", "--save-interval"),
        ),
    )
    probe = simulation(layout, options, "MINDSPEED_MS_PATH", "pretrain_gpt.py " + " ".join(lines), manual.blanks)
    return (
        launch_script(
            case, layout, options, manual, Launch(checkout="MINDSPEED_MS_PATH", command=(*MSRUN, "pretrain_gpt.py", *lines))
        ),
        probe,
        readme(case, layout, options, manual),
    )

"""A layout as MindSpeed-LLM's flags."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.quoting import Shell, flags
from meshwright.domain.layout import Full, Mixed, Selective
from meshwright.frameworks.ascend.arithmetic import inner_ranks
from meshwright.frameworks.ascend.launch import CONNECT_TIMEOUT_S, MSRUN, fullest_stage, mindspore_variables
from meshwright.frameworks.ascend.recompute_lists import lists_of_parts, parts_of, unsayable
from meshwright.frameworks.ascend.stages import counts_of, normal_stages, split_of
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.bridge.adapters import PROJECTIONS
from meshwright.frameworks.keys import NOT, Says, decided, switched_on
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
    unsaved,
)
from meshwright.frameworks.mindspeed_llm.layouts import layout_text, padding
from meshwright.frameworks.mindspeed_llm.model_flags import model_flags
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Grid, Layout
    from meshwright.domain.model import Model

ALGORITHMS = {
    "ring": "megatron_cp_algo",
    "ulysses": "ulysses_cp_algo",
    "hybrid": "hybrid_cp_algo",
    "all-gather": "kvallgather_cp_algo",
}
ACTIVATION, NORM = "--recompute-activation-function", "--recompute-norm"
_MODULES = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
UNSPOKEN = ("the Ulysses degree of hybrid context parallelism: the ranks of one scale-up domain",)


def _gathers(layout: Layout) -> bool:
    """Whether there are parameters to gather beside compute: sharded ones, of a pipeline that is not folded."""
    return layout.zero_stage > 0 and layout.schedule != "dualpipev"


KEYS = (
    Says("--tensor-model-parallel-size", "tensor_parallel"),
    Says("--pipeline-model-parallel-size", "pipeline_parallel"),
    Says("--context-parallel-size", "context_parallel"),
    Says("--micro-batch-size", "microbatch_sequences"),
    Says("--global-batch-size", lambda plan: plan.batch),
    Says("--sequence-parallel", "sequence_parallel"),
    Says("--use-distributed-optimizer", lambda plan: plan.zero > 0),
    Says("--overlap-grad-reduce", "overlap.gradient_reduce", default=False, when=lambda plan: plan.schedule != "dualpipev"),
    Says("--overlap-param-gather", "overlap.parameter_gather", default=False, when=lambda plan: _gathers(plan.layout)),
    Says("--no-overlap-p2p-communication", "overlap.point_to_point", NOT),
    Says("--use-ascend-mc2", "overlap.tensor"),
    Says("--swap-optimizer", lambda plan: "optimizer" in plan.layout.offload),
    Says("--context-parallel-algo", "context_kind", ALGORITHMS, when=lambda plan: plan.cp > 1),
    Says("--ulysses-degree-in-cp", lambda plan: inner_ranks(plan.case, plan.layout),
         when=lambda plan: plan.cp > 1 and plan.kind == "hybrid"),
    Says("--expert-model-parallel-size", "expert_parallel", when=lambda plan: plan.moe),
    Says("--expert-tensor-parallel-size", lambda plan: plan.etp, when=lambda plan: plan.moe),
    Says("--num-distributed-optimizer-instances", lambda plan: plan.ranks // plan.shards[0],
         when=lambda plan: 1 < plan.shards[0] < plan.ranks),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The flags that express a layout."""
    flags = switched_on(decided(KEYS, Planned(case, layout, release)))
    return flags | _pipeline(case, layout) | _recompute(case, layout)


def _pipeline(case: Case, layout: Layout) -> dict[str, object]:
    """Stages and chunks; what is not even is a list, with chunks a layout string, folded layers that do nothing."""
    split, layers = split_of(case, layout), case.model.num_layers
    counts = {count for row in split for count in row}
    if layout.schedule == "dualpipev":
        padded, noops = padding(split, folded=True)
        some = {"--noop-layers": ",".join(map(str, noops))} if noops else {}
        return {"--num-layers": padded, "--schedules-method": "dualpipev", **some}
    if layout.virtual_stages > 1:
        if len(counts) == 1:
            return {"--num-layers": layers, "--num-layers-per-virtual-pipeline-stage": counts.pop()}
        return {"--num-layers": layers, "--pipeline-model-parallel-layout": layout_text(split, case.model.num_mtp_layers)}
    return {"--num-layers": layers, **({} if len(counts) == 1 else {"--num-layer-list": ",".join(map(str, split[0]))})}


def apart(model: Model) -> Mapping[str, tuple[str, ...]]:
    """Flags that recompute a part of so many layers behind the full ones -> the modules that they recompute."""
    return {ACTIVATION: ("mlp_act", "moe_act") if model.is_moe else ("mlp_act",), NORM: ("layernorm",)}


def numbers(case: Case, layout: Layout) -> tuple[int, dict[str, int]] | None:
    """How many layers of each chunk are recomputed in full, and by each flag of ``apart`` behind them.

    None where no numbers say what the layout recomputes.
    """
    split, flags = split_of(case, layout), apart(case.model)
    words = [module for modules in flags.values() for module in modules]
    parts = parts_of(layout.recompute, split)
    full, lists = lists_of_parts(parts, words, split, behind_full=True)
    first, each = _most(full), {flag: _most(lists[modules[0]]) for flag, modules in flags.items()}
    wanted = {module: behind(full, split, each[flag]) for flag, modules in flags.items() for module in modules}
    known = {module for treatment, _ in parts for module in getattr(treatment, "modules", ())} <= set(words)
    said = known and lists == wanted and full == counts_of(Full(layers=first), split) and unsayable(parts, split) is None
    return (first, each) if said else None


def behind(full: Grid, split: Grid, number: int | None) -> Grid:
    """So many layers of each chunk behind the full ones, or all of them."""
    left = tuple(tuple(map(int.__sub__, *rows)) for rows in zip(split, full, strict=True))
    return left if number is None else tuple(tuple(min(number, count) for count in row) for row in left)


def _most(counts: Grid) -> int:
    return max(max(row) for row in counts)


def _several(case: Case, layout: Layout) -> dict[str, object]:
    """Full layers, and the flags that recompute a part of those behind them."""
    said = numbers(case, layout)
    assert said is not None, "a limit refuses what no numbers say"
    first, each = said
    flags: dict[str, object] = {}
    if first:
        flags = {"--recompute-granularity": "full", "--recompute-method": "block", "--recompute-num-layers": first}
    for flag, number in each.items():
        flags |= {flag: True, f"{flag}-num-layers": number} if number else {}
    return flags


def _recompute(case: Case, layout: Layout) -> dict[str, object]:
    """Whole layers, the first of each chunk, modules, or several of them."""
    match layout.recompute:
        case Mixed():
            return _several(case, layout)
        case Full(layers=None):
            return {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}
        case Full(layers=int(count)):
            return {"--recompute-granularity": "full", "--recompute-method": "block", "--recompute-num-layers": count}
        case Selective(modules=modules):
            activation = apart(case.model)[ACTIVATION] if "mlp_act" in modules else ()
            flags: dict[str, object] = {ACTIVATION: True} if activation else {}
            if rest := tuple(sorted(set(modules) - set(activation))):
                flags |= {"--recompute-granularity": "selective", "--recompute-modules": rest}
            return flags
        case _:
            return {}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as its flags say it."""
    overlap = replace(
        layout.overlap, expert=False, gradient_reduce=layout.overlap.gradient_reduce and layout.schedule != "dualpipev",
        parameter_gather=layout.overlap.parameter_gather and _gathers(layout),
    )
    kind = layout.context_kind if layout.context_parallel > 1 else "ring"
    recompute = layout.recompute
    if isinstance(recompute, Selective):
        recompute = Selective(modules=tuple(sorted(set(recompute.modules))))
    return normal_stages(case, replace(layout, overlap=overlap, context_kind=kind, recompute=recompute))


class Backend(Struct, frozen=True, kw_only=True):
    """What runs MindSpeed-LLM's programs: PyTorch, or MindSpore behind its interfaces."""

    title: str
    needs: str
    checkout: str
    """What the checkout is, ``{release}`` in it."""
    launcher: tuple[str, ...]
    words: tuple[str, ...] = ()
    """Behind all flags."""
    variables: tuple[Variable, ...]


_CONNECTIONS = Variable(name="CUDA_DEVICE_MAX_CONNECTIONS", value="1", reason="Megatron's own check asks for it on any device")
TORCH = Backend(
    title="MindSpeed-LLM", needs="MindSpeed-LLM with Megatron-LM core_v0.12.1, MindSpeed, torch_npu and CANN.",
    checkout="checkout of MindSpeed-LLM at {release}", launcher=TORCHRUN,
    variables=(
        _CONNECTIONS,
        Variable(name="PYTORCH_NPU_ALLOC_CONF", value="expandable_segments:True", reason="virtual memory against fragments"),
        Variable(name="HCCL_CONNECT_TIMEOUT", value=str(CONNECT_TIMEOUT_S), reason="ranks that load slowly are waited for"),
        Variable(name="HCCL_DETERMINISTIC", value="false", reason="deterministic reductions are slower"),
    ),
)
MINDSPORE = Backend(
    title="MindSpeed-Core-MS",
    needs="MindSpore, CANN, and MindSpeed-LLM with its libraries as MindSpeed-Core-MS converts them and sets their paths.",
    checkout="MindSpeed-LLM as MindSpeed-Core-MS {release} converts it", launcher=MSRUN, words=("--ai-framework mindspore",),
    variables=(_CONNECTIONS, *mindspore_variables()),
)
"""Source:  MindSpeed-LLM c77308a, its examples for MindSpore and how they are installed."""


def write(case: Case, layout: Layout, release: str, options: Options, backend: Backend = TORCH) -> tuple[File, ...]:
    """``launch.sh`` and ``README.md``."""
    manual = _manual(case, layout, release, options, backend)
    program = "pretrain_gpt.py" if case.training.task == "pretrain" else "posttrain_gpt.py"
    settings = model_flags(case) | dict(decide(case, layout, release)) | _training(case, options) | dict(options.launch.keys)
    launch = Launch(checkout="MINDSPEED_LLM_PATH", command=(*backend.launcher, program, *flags(settings), *_BLANKS, *backend.words))
    return (launch_script(case, layout, options, manual, launch), readme(case, layout, options, manual))


_SPLITS = ("--num-layer-list", "--pipeline-model-parallel-layout", "--num-layers-per-virtual-pipeline-stage",
           "--schedules-method", "--noop-layers")
"""Flags that mean nothing without a pipeline."""
_BLANKS = (
    '--tokenizer-type PretrainedFromHF --tokenizer-name-or-path "$TOKENIZER"',
    '--data-path "$DATA" --split 100,0,0',
    '--lr "$LR"',
)


def _training(case: Case, options: Options) -> dict[str, object]:
    """Numbers, optimizer and length of the run."""
    flags: dict[str, object] = {
        f"--{case.training.precision.name}": True, "--optimizer": "adam", "--train-iters": train_steps(case, options),
        "--weight-decay": 0.1, "--clip-grad": 1.0, "--log-interval": 1, "--eval-iters": 0, "--log-throughput": True,
        "--distributed-backend": "nccl", "--no-gradient-accumulation-fusion": True,
    }
    precision = case.training.precision
    if precision.name == "bf16" and precision.gradient_bytes < 4:
        flags["--grad-reduce-in-bf16"] = True
    if precision.name == "fp16" and precision.gradient_bytes >= 4:
        flags["--accumulate-allreduce-grads-in-fp32"] = True
    if case.training.task != "pretrain":
        flags |= {"--stage": "sft", "--is-instruction-dataset": True, "--finetune": True}
    if case.training.lora is not None:
        flags |= {
            "--lora-r": case.training.lora.rank,
            "--lora-target-modules": tuple(each for each in _MODULES if set(PROJECTIONS[each]) & set(case.training.lora.targets)),
        }
    return flags


def _manual(case: Case, layout: Layout, release: str, options: Options, backend: Backend) -> Manual:
    """What the README and the launch script say."""
    stage, pp = fullest_stage(layout, options), layout.pipeline_parallel
    layers = max(1, sum(row[stage] for row in split_of(case, layout)))
    few = f"--num-layers {layers} --pipeline-model-parallel-size 1 --global-batch-size {layout.microbatch_sequences * pp}"
    ranks = layout.tensor_parallel * layout.context_parallel
    split = [flag for flag in _SPLITS if flag in decide(case, layout, release)]
    out = f"take `{'`, `'.join(split)}` out, and " if split else ""
    held = f"the stage in the pipeline holds up to {pp - stage} micro-batches, the probe one. " if pp - stage > 1 else ""
    latent = any(each.latent for each in case.model.attentions)
    return Manual(
        title=f"{backend.title} {release}", needs=backend.needs,
        commands=start_commands(layout, case, before="MINDSPEED_LLM_PATH=/path/to/MindSpeed-LLM DATA=... TOKENIZER=... LR=..."),
        blanks=(
            Blank(name="MINDSPEED_LLM_PATH", default=Shell("$PWD"), what=backend.checkout.format(release=release)),
            Blank(name="DATA", default="", what="prefix of the preprocessed data"),
            Blank(name="TOKENIZER", default="", what="folder of the tokenizer"),
            Blank(name="LR", default="1e-5", what="learning rate: choose your own"),
        ),
        variables=backend.variables,
        off=(
            Switch(
                name="--reuse-fp32-param",
                risk="equivalent",
                what="keeps the upper half of the master weights as the bf16 weights: less memory",
            ),
            *(
                (Switch(name="--moe-fb-overlap", risk="equivalent", what="hides the experts' exchange behind another micro-batch"),)
                if case.model.is_moe
                else ()
            ),
        ),
        probe=(
            f"No dry run: the fullest stage ({stage}) is shown by as many of its layers on {ranks} device{'s' * (ranks > 1)} "
            f"of one node: {out}append `{few}` to the flags (the last one counts). Read `max_memory_allocated` of the first log "
            f"line; {held}Give it as bytes to `meshwright estimate --request plan.yaml --anchor-memory {stage}=BYTES`."
        ),
        assumed=(
            "Data and tokenizer are not guessed; the learning rate is a placeholder.",
            unsaved("--save", "--load", "--save-interval"),
            *(("DeepSeek's layers need `--spec mindspeed_llm.tasks.models.spec.deepseek_spec layer_spec`.",) if latent else ()),
        ),
    )

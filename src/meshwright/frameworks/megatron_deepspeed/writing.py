"""A layout as Megatron-DeepSpeed's flags and JSON, which say the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, Written, flags
from meshwright.domain.layout import Full, Overlap, Selective
from meshwright.domain.model import MixtureOfExperts
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.deepspeed.writing import batch_keys, config, zero_keys
from meshwright.frameworks.hub import hub_name
from meshwright.frameworks.keys import Says, decided, switched_on
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
from meshwright.frameworks.planned import Planned
from meshwright.frameworks.rules import attention_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
UNSPOKEN = ("overlap: the pipeline engine reduces gradients after the last backward pass; without it overlap_comm decides",)


def pipeline_engine(case: Case, layout: Layout) -> bool:
    """Whether DeepSpeed's PipelineEngine runs: not where ZeRO-2, ZeRO-3, experts or Ulysses refuse it."""
    off = layout.zero_stage >= 2 or case.model.is_moe or layout.context_parallel > 1
    return layout.pipeline_parallel > 1 or not off


KEYS = (
    Says("--tensor-model-parallel-size", "tensor_parallel"),
    Says("--pipeline-model-parallel-size", "pipeline_parallel"),
    Says("--micro-batch-size", lambda plan: plan.mb),
    Says("--global-batch-size", lambda plan: plan.mb * plan.microbatches * plan.dp),
    Says("--zero-stage", lambda plan: plan.zero),
    Says("--sequence-parallel", "sequence_parallel"),
    Says("--no-pipeline-parallel", lambda plan: not pipeline_engine(plan.case, plan.layout)),
    Says("--cpu-optimizer", lambda plan: bool(plan.layout.offload)),
    Says("--enable-expert-tensor-parallelism", lambda plan: plan.ep > 1 and plan.etp > 1),
    Says("--create-moe-param-group", lambda plan: plan.moe),
    Says("--ds-sequence-parallel-size", "context_parallel", when=lambda plan: plan.cp > 1),
    Says("--moe-expert-parallel-size", lambda plan: plan.ep, when=lambda plan: plan.moe),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """Flags and keys of the JSON that express a layout."""
    keys = switched_on(decided(KEYS, Planned(case, layout, release)))
    if isinstance(layout.recompute, Full):
        keys |= {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}
    elif isinstance(layout.recompute, Selective):
        keys["--recompute-granularity"] = "selective"
    return {**keys, **batch_keys(layout), **zero_keys(normal(case, layout))}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as Megatron-DeepSpeed has it."""
    grad = layout.overlap.gradient_reduce and layout.zero_stage > 0 and not pipeline_engine(case, layout)
    overlap = Overlap(
        gradient_reduce=grad, parameter_gather=grad and layout.zero_stage == 3, tensor=False, point_to_point=False, expert=False
    )
    return replace(
        layout, overlap=overlap, schedule="1f1b", stage_layers=None,
        sequence_parallel=layout.sequence_parallel and layout.tensor_parallel > 1,
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
    )


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``ds_config.json``, ``train.sh`` and ``README.md``."""
    keys = decide(case, layout, release)
    manual = _manual(case, layout, release, options)
    lines = [*model_flags(case), *training_flags(case, options), *flag_lines(keys)]
    command = (*TORCHRUN, "pretrain_gpt.py", '--deepspeed --deepspeed_config "$HERE/ds_config.json"', *lines)
    launch = Launch(checkout="MEGATRON_DEEPSPEED_PATH", command=command)
    return (
        File(path="ds_config.json", text=json.dumps(_json(case, keys), indent=2) + "\n"),
        launch_script(case, layout, options, manual, launch, path="train.sh"),
        readme(case, layout, options, manual),
    )


def _json(case: Case, keys: Values) -> dict[str, object]:
    """The JSON; clipping is DeepSpeed's, so it stands here as well."""
    return {**config(case, {key: value for key, value in keys.items() if not key.startswith("-")}), "gradient_clipping": 1.0}


def flag_lines(keys: Values) -> list[str]:
    """Flags among the keys, one a line."""
    return list(flags({key: value for key, value in keys.items() if key.startswith("-")}))


def model_flags(case: Case) -> list[str]:
    """The flags that describe the model."""
    model, attention = case.model, attention_of(case)
    block = model.feed_forward
    found: dict[str, object] = {
        "--num-layers": model.num_layers, "--hidden-size": model.hidden, "--num-attention-heads": attention.num_heads,
        "--num-key-value-heads": attention.num_key_value_heads, "--kv-channels": attention.head_dim,
        "--ffn-hidden-size": block.expert_width if isinstance(block, MixtureOfExperts) else block.width,
        "--seq-length": case.batch.sequence_tokens,
        "--max-position-embeddings": model.position_table or max(case.batch.sequence_tokens, model.max_sequence or 0),
        "--normalization": "rmsnorm" if model.norm == "rms" else "layernorm",
        "--make-vocab-size-divisible-by": case.implementation.pads_vocabulary_to,
    }
    if model.norm_epsilon is not None:
        found["--layernorm-epsilon"] = model.norm_epsilon
    if model.position == "rope":
        base = Shell("$ROTARY_BASE") if model.rotary_base is None else str(round(model.rotary_base))
        found |= {"--use-rotary-position-embeddings": True, "--rotary-position-embeddings-theta": base}
        found |= {"--rotary-percent": model.rotary_ratio} if model.rotary_ratio != 1 else {}
    if isinstance(block, MixtureOfExperts):
        found |= {"--num-experts": block.num_experts, "--expert-interval": 1, "--topk": block.experts_per_token,
                  "--moe-loss-coeff": Shell("$MOE_LOSS_COEFFICIENT")}
    switches = {
        "--swiglu": block.gated, "--disable-bias-linear": not attention.output_bias,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--use-flash-attn-v2": case.implementation.flash_attention,
    }
    return flag_lines(found | {flag: True for flag, on in switches.items() if on})


def training_flags(case: Case, options: Options) -> list[str]:
    """Numbers, length and data of the training; what is not known stands as a variable."""
    return flag_lines({
        f"--{case.training.precision.base_dtype}": True, "--optimizer": "sgd" if case.training.optimizer.name == "sgd" else "adam",
        "--train-iters": train_steps(case, options), "--lr": Shell("$LR"), "--min-lr": Shell("$MIN_LR"),
        "--lr-decay-style": "cosine", "--weight-decay": 0.1, "--clip-grad": 1.0, "--adam-beta1": 0.9, "--adam-beta2": 0.95,
        "--init-method-std": Shell("$INIT_STD"), "--data-path": Written("$DATA_PATH"),  # several words where data sets are mixed
        "--split": "949,50,1", "--tokenizer-type": Shell("$TOKENIZER_TYPE"),
        "--tokenizer-model": Shell("$TOKENIZER_MODEL"), "--log-interval": 1, "--eval-iters": 0, "--eval-interval": 1000,
        "--attention-dropout": 0.0, "--hidden-dropout": 0.0,
    })


def _manual(case: Case, layout: Layout, release: str, options: Options) -> Manual:
    """What the README and the launch script say."""
    model = case.model
    engine = pipeline_engine(case, layout)
    blanks = [
        Blank(name="MEGATRON_DEEPSPEED_PATH", default=Shell("$PWD"), what=f"checkout of Megatron-DeepSpeed at {release}"),
        Blank(name="DATA_PATH", default="/path/to/data_text_document", what="preprocessed data set (path prefix)"),
        Blank(name="TOKENIZER_TYPE", default="HFTokenizer", what="how text became tokens"),
        Blank(name="TOKENIZER_MODEL", default=hub_name(case.model), what="tokenizer of the model: a name of the hub, or a folder"),
        Blank(name="LR", default="1.0e-4", what="peak learning rate"),
        Blank(name="MIN_LR", default="1.0e-5", what="final learning rate"),
        Blank(name="INIT_STD", default="0.02", what="deviation of initial weights"),
    ]
    if model.position == "rope" and model.rotary_base is None:
        blanks.append(
            Blank(name="ROTARY_BASE", default="10000", what="base of the rotary frequencies: the catalogue does not know it")
        )
    if model.is_moe:
        blanks.append(Blank(name="MOE_LOSS_COEFFICIENT", default="0.01", what="weight of the balancing loss"))
    variables = []
    if layout.sequence_parallel:
        variables.append(Variable(name=CONNECTIONS, value="1", reason="Using sequence parallelism requires it"))
    return Manual(
        title=f"Megatron-DeepSpeed {release}",
        needs="`train.sh` and `ds_config.json` say the same batch and ZeRO stage; where they differ the JSON wins, so change both.",
        commands=start_commands(
            layout, case, path="train.sh", before="MEGATRON_DEEPSPEED_PATH=/path/to/Megatron-DeepSpeed DATA_PATH=...",
        ),
        blanks=tuple(blanks), variables=tuple(variables),
        off=(
            *(() if case.implementation.flash_attention else
              (Switch(name="--use-flash-attn-v2", risk="equivalent", what="fused attention, which needs its package; the "
                                                                          "prediction is without"),)),
            Switch(name="--enable-zbh1-pipeline", risk="equivalent", what="zero-bubble H1 schedule of the pipeline engine "
                                                                          "(no sequence parallelism)"),
            Switch(name="--partition-activations", risk="exact", what="cuts checkpoints over tensor ranks (with "
                                                                      "--deepspeed-activation-checkpointing)"),
            *((Switch(name="zero_optimization.overlap_comm", risk="exact", what="reduces gradients beside the backward pass"),)
              if layout.zero_stage and not engine and not layout.overlap.gradient_reduce else ()),
        ),
        probe=_probe(case, layout, options),
        assumed=(
            "DeepSpeed's PipelineEngine runs" + (" even with one stage." if engine and layout.pipeline_parallel == 1 else ".")
            if engine else "`--no-pipeline-parallel`: DeepSpeed's plain engine runs, as ZeRO-2 and 3, experts and Ulysses demand.",
            *(("Layers are spread over stages by DeepSpeed (`partition_method='type:transformer'`).",) if engine else ()),
            unsaved("--save", "--load", "--save-interval"),
            *(("Experts are DeepSpeed's own MoE layer: capacity factors and token dropping are its defaults.",) * model.is_moe),
        ),
    )


def _probe(case: Case, layout: Layout, options: Options) -> str:
    """How to measure the memory of the fullest stage: its layers on one pipeline rank, all its micro-batches at once."""
    stages, ranks = layout.pipeline_parallel, layout.tensor_parallel * layout.context_parallel
    stage = options.estimate.peak_stage if options.estimate is not None else 0
    held = max(1, min(stages - stage, layout.num_microbatches))
    layers, size = -(-case.model.num_layers // stages), layout.microbatch_sequences * held
    several = f" The stage holds {held} micro-batches at once, for which one larger stands." if held > 1 else ""
    return (
        f"The layers of stage {stage} on {ranks} device{'s' if ranks > 1 else ''}: `train.sh` with `--num-layers {layers} "
        f"--pipeline-model-parallel-size 1 --micro-batch-size {size} --global-batch-size {size} --train-iters 3`, and in "
        f"`ds_config.json` `train_batch_size` {size}, `train_micro_batch_size_per_gpu` {size} and "
        f"`gradient_accumulation_steps` 1.{several} One replica shards no states: it needs more than the stage, an upper bound. "
        "Read `max reserved` of the line `memory (MB)`; "
        f"`meshwright estimate --request plan.yaml --anchor-memory {stage}=BYTES` takes it."
    )

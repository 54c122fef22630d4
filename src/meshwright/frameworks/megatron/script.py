"""The launch files of one layout: ``train.sh`` for torchrun and Slurm, a probe for one device, and a README beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.documents.quoting import Shell
from meshwright.domain.mixers import GatedDelta
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.manual import (
    Blank,
    Manual,
    Switch,
    common_values,
    readme,
    start_commands,
    task_variables,
    template,
    train_steps,
    with_launch,
)
from meshwright.frameworks.megatron.arguments import checkpoint_arguments, data_arguments, groups, run_arguments
from meshwright.frameworks.megatron.environment import variables
from meshwright.frameworks.megatron.flags import Version, parse_version
from meshwright.frameworks.megatron.hybrid import is_hybrid, letters, program
from meshwright.frameworks.megatron.precision_arguments import loss_in_place
from meshwright.frameworks.megatron.probe import probe_files, probe_note
from meshwright.frameworks.megatron.sparse import is_sparse

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model

_BEFORE = "MEGATRON_PATH=/path/to/Megatron-LM"


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``train.sh``, ``probe.sh`` and ``README.md`` for a layout that obeys the limits of the release."""
    version = parse_version(release)
    manual = _manual(case, layout, version, options)
    values = {
        **common_values(case, layout, options), **_values(case, layout, version, options), "manual": with_launch(manual, options),
    }
    train = File(path="train.sh", text=template("megatron_train.sh.j2").render(values), executable=True)
    return (train, *probe_files(case, layout, version, options), readme(case, layout, options, manual))


def _values(case: Case, layout: Layout, version: Version, options: Options) -> dict[str, Any]:
    """What the script fills in beyond the manual."""
    mock, real = data_arguments(case, layout, version)
    return {
        "version": version, "program": program(case.model, version), "iters": train_steps(case, options),
        "sft": case.training.task == "sft",
        "groups": {name: list(arguments.lines()) for name, arguments in groups(
            case, layout, version, options.launch).items() if arguments.items},
        "mock": list(mock.lines()), "real": list(real.lines()), "run": list(run_arguments(version, options.launch).lines()),
        "checkpoints": list(checkpoint_arguments(version).lines()),
    }


def _manual(case: Case, layout: Layout, version: Version, options: Options) -> Manual:
    """What the README and the script say beyond the plan."""
    return Manual(
        title=f"Megatron-LM {version.name}",
        needs=f"Arguments of `train.sh` are passed on to `{program(case.model, version)}`. Megatron-LM needs Transformer Engine"
        f"{_kernels(case.model)}. Without `DATA_PATH` "
        f"the run uses mock data and {train_steps(case, options)} steps; the log prints `throughput per GPU (TFLOP/s/GPU)` "
        f"for each "
        "of them.",
        commands=(*start_commands(layout, case, "train.sh", _BEFORE), ("look at the arguments", "PRINT_ARGS=1 bash train.sh")),
        blanks=(*_places(case, version), *numbers(case, options)),
        variables=(*task_variables(case), *variables(case, layout, version.minor)),
        off=_switches(case, layout, version),
        probe=probe_note(case, version, options),
        assumed=_assumed(case),
    )


def _kernels(model: Model) -> str:
    """What a run needs besides, of whose kernels Megatron-LM has none of its own."""
    wanted = (
        (is_hybrid(model), "Mamba-2 also mamba-ssm and causal-conv1d"),
        (any(isinstance(mixer, GatedDelta) for mixer in model.mixers),
         "gated delta nets also flash-linear-attention and causal-conv1d"),
        (is_sparse(model), "sparse attention also flash-mla, nvidia-cudnn-frontend[cutedsl] and fast-hadamard-transform"),
    )
    return "".join(f", {words}" for needed, words in wanted if needed)


def _places(case: Case, version: Version) -> tuple[Blank, ...]:
    """Where things are."""
    sft = case.training.task == "sft"
    data = "conversations (JSONL)" if sft else "preprocessed data, the prefix of its .bin and .idx files"
    return (
        Blank(name="MEGATRON_PATH", default=Shell("$PWD"), what=f"checkout of Megatron-LM {version.name}"),
        Blank(name="DATA_PATH", default="", what=f"{data}; empty: mock data"),
        Blank(name="TOKENIZER_TYPE", default="SFTTokenizer" if sft else "HuggingFaceTokenizer", what="of the data"),
        Blank(name="TOKENIZER_MODEL", default="", what="Hugging Face name or path"),
        *([Blank(name="PROMPT_FORMAT", default="default", what="chat template of the tokenizer")] if sft else []),
        Blank(name="CHECKPOINT_DIR", default="", what="empty: nothing is saved or loaded"),
        Blank(name="SAVE_INTERVAL", default="500", what="optimizer steps"),
    )


def numbers(case: Case, options: Options) -> list[Blank]:
    """Numbers to fill in."""
    model = case.model
    blanks = [
        ("TRAIN_ITERS", str(train_steps(case, options)), "optimizer steps"),
        ("LEARNING_RATE", "3e-4", "peak learning rate; Meshwright does not choose it"),
        ("MIN_LEARNING_RATE", "3e-5", "learning rate at the end of the decay"),
        ("WARMUP_FRACTION", "0.01", "share of the run in which the learning rate rises"),
        ("WEIGHT_DECAY", "0.1", ""),
        ("CLIP_GRADIENT", "1.0", "gradient norm is clipped to this"),
        ("ADAM_BETA1", "0.9", ""),
        ("ADAM_BETA2", "0.95", ""),
        ("INIT_STD", "0.02", "standard deviation of the initial weights"),
        ("NORM_EPSILON", epsilon_text(model), "rms_norm_eps or layer_norm_eps of config.json"),
    ]
    if model.position == "rope" and model.rotary_base is None:
        blanks.append(("ROTARY_BASE", "10000", "rope_theta of config.json"))
    if model.attention.latent:
        blanks.append(("ROTARY_SCALING_FACTOR", "1.0", "yarn: factor of rope_scaling"))
        blanks.append(("MSCALE", "1.0", "yarn: mscale of rope_scaling"))
        blanks.append(("MSCALE_ALL_DIM", "1.0", "yarn: mscale_all_dim of rope_scaling"))
    if model.is_moe:
        default = "1e-4" if model.experts and model.experts.correction_bias else "1e-3"
        blanks.append(("MOE_AUX_LOSS_COEFFICIENT", default, "weight of the load-balancing loss"))
    if is_sparse(model):
        blanks.append(("INDEXER_LOSS_COEFFICIENT", "1e-3", "weight of the loss from which indexers of sparse attention learn"))
    if model.num_mtp_layers:
        blanks.append(("MTP_LOSS_FACTOR", "0.1", "weight of the multi-token-prediction loss"))
    return [Blank(name=name, default=default, what=what) for name, default, what in blanks]


def epsilon_text(model: Model) -> str:
    """What norms add, as the model has it, or as most have it.

    >>> from meshwright.catalog import load_model
    >>> epsilon_text(load_model("qwen2.5-7b")), epsilon_text(load_model("gpt3-175b"))
    ('1e-6', '1e-5')
    """
    return f"{model.norm_epsilon or 1e-5:.0e}".replace("e-0", "e-")


def _assumed(case: Case) -> tuple[str, ...]:
    """Where the arguments stand for something that they do not say exactly."""
    model = case.model
    gated = model.feed_forward.gated
    remarks = [f"Activation: {'a gated' if gated else 'an ungated'} one; exchange the flag if the model has another "
               "(memory and time stay the same)."]
    if is_hybrid(model) and any(len(word) > 1 for word in letters(model)):
        remarks.append("Each layer of the model is two of Megatron-LM's, as its pattern has it: one mixes, one feeds forward.")
    if model.architecture.startswith("Granite"):
        remarks.append("Megatron-LM has none of Granite's multipliers (of embeddings, residuals, scores and logits): this trains a "
                       "model without them.")
    if any(each.window_tokens for each in model.attentions):
        remarks.append("Windows are written as sliding windows; chunked attention does not exist in Megatron-LM.")
    if model.position == "rope":
        if model.rotary_base is None:
            remarks.append("The base of RoPE is not known for this model: `ROTARY_BASE` is Megatron-LM's default.")
        if not model.attention.latent:
            remarks.append("RoPE frequencies are not scaled; a model with rope_scaling needs `--use-rope-scaling` or another "
                           "method.")
        remarks.append("RoPE acts on all layers; a model with layers without it needs `--no-rope-freq`.")
    return tuple(remarks)


def _switches(case: Case, layout: Layout, version: Version) -> tuple[Switch, ...]:
    """Switches that may be faster but are off: flag, risk level, and what it does."""
    moe, overlap = case.model.is_moe, layout.overlap
    bf16 = case.training.precision.base_dtype == "bf16"
    found = [
        (not overlap.tensor and layout.tensor_parallel > 1 and layout.sequence_parallel, "--tp-comm-overlap",
         "equivalent", "tensor-parallel collectives beside their GEMMs; needs user buffers of Transformer Engine"),
        (moe and layout.expert_parallel > 1 and not overlap.expert and version.minor >= 14,
         "--overlap-moe-expert-parallel-comm", "exact", "expert all-to-all beside compute of another micro-batch"),
        (moe and version.minor >= 14, "--moe-router-fusion", "equivalent", "one kernel for routing; needs TE 2.7"),
        (not loss_in_place(case.implementation), "--cross-entropy-loss-fusion", "equivalent", "loss in place on logits"),
        (bf16 and case.training.precision.gradient_bytes >= 4 and version.minor >= 12, "--grad-reduce-in-bf16", "approximate",
         "half the bytes of gradients and of their reduction"),
        (case.training.precision.gemm_dtype == "bf16" and case.cluster.device.supports("fp8"), "--fp8-format hybrid",
         "approximate", "FP8 GEMMs: plan again with a precision of fp8-*"),
    ]
    return tuple(Switch(name=flag, risk=risk, what=what) for off, flag, risk, what in found if off)

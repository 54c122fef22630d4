"""What options are called elsewhere: launch scripts, guides and other tools; an unknown one of these names ours."""

from __future__ import annotations

import re

OPTIONS = {
    "--device": ("gpu", "gpu-type", "gpu-model", "gpu-name", "accelerator", "device-type", "hardware"),
    "--devices": ("gpus", "num-gpus", "ngpus", "n-gpus", "num-devices", "world-size", "nproc"),
    "--nodes": ("nnodes", "num-nodes", "n-nodes", "num-machines"),
    "--devices-per-node": ("gpus-per-node", "nproc-per-node", "num-gpus-per-node", "ntasks-per-node"),
    "--sequence": (
        "seq", "seq-len", "seq-length", "seqlen", "sequence-length", "sequence-len", "context", "context-length", "max-seq-len",
        "max-length", "encoder-seq-length",
    ),
    "--global-batch": ("gbs", "batch", "batch-size", "global-batch-size", "train-batch-size", "global-bs"),
    "--precision": ("dtype", "mixed-precision", "bf16", "fp16", "fp8"),
    "--framework": ("trainer", "backend", "engine", "library"),
    "--out": ("output", "o"),
    "--save": ("output-dir", "out-dir", "save-dir"),
}
"""Our option -> its names elsewhere, without dashes."""
KNOBS = {
    "tp": ("tp", "tensor-parallel", "tensor-parallel-size", "tensor-model-parallel-size", "tp-size"),
    "pp": ("pp", "pipeline-parallel", "pipeline-parallel-size", "pipeline-model-parallel-size", "pp-size"),
    "cp": ("cp", "context-parallel", "context-parallel-size", "cp-size"),
    "ep": ("ep", "expert-parallel", "expert-parallel-size", "expert-model-parallel-size", "ep-size"),
    "dp": ("dp", "data-parallel", "data-parallel-size", "dp-size"),
    "vp": ("vp", "vpp", "virtual-stages", "num-virtual-stages"),
    "mb": ("mb", "mbs", "micro-batch", "micro-batch-size", "microbatch", "micro-batch-per-gpu"),
    "zero": ("zero", "zero-stage", "fsdp"),
    "recompute": ("recompute", "activation-checkpointing", "gradient-checkpointing", "recompute-granularity"),
}
"""Knob of a layout -> options that set it elsewhere; here it is pinned."""
LABEL_WORD = re.compile(r"(tp|pp|cp|dp|ep|vp|mb|zero)[0-9]+$")
LAYOUT_OF = {"plan": "--compare"} | dict.fromkeys(("fix", "estimate", "explain", "balance", "dryrun", "pack"), "--layout")
"""Verb -> its option for a layout."""
MODEL = ("model", "model-name", "model-path", "hf-model", "checkpoint")


def meant(option: str, known: frozenset[str]) -> str:
    """A hint for an option that other programs have, in those of a verb; empty where none is meant.

    >>> meant("--gpu", frozenset({"--device"}))
    "; it is '--device' here"
    >>> meant("--tensor_parallel_size", frozenset({"--pin"}))
    "; it is '--pin tp=N' here"
    >>> meant("--tensor-parallel-size", frozenset({"--layout"}))
    "; it is part of the layout here, as in --layout 'tpN ...'"
    """
    word = option.lstrip("-").replace("_", "-").lower()
    ours = [name for name, others in OPTIONS.items() if word in others and name in known]
    values = {knob: "=full" if knob == "recompute" else "N" for knob, others in KNOBS.items() if word in others}
    if "--pin" in known:
        ours += [f"--pin {knob}={value.lstrip('=')}" for knob, value in values.items()]
    if ours:
        return f"; it is {ours[0]!r} here"
    if values and "--layout" in known:
        return f"; it is part of the layout here, as in --layout '{''.join(*values.items())} ...'"
    return "; the model is named without an option, right after the verb" if word in MODEL and known & {"--sequence"} else ""


def meant_argument(words: str, verb: str) -> str:
    """A hint for an argument that a verb does not take: the option that a layout belongs to, or quotes.

    >>> meant_argument("tp4 pp2 mb1", "estimate")
    "a layout is given as --layout 'tp4 pp2 mb1'"
    >>> meant_argument("two words", "pack")
    'a value with spaces needs quotes'
    """
    if verb in LAYOUT_OF and any(LABEL_WORD.match(word) for word in words.split()):
        return f"a layout is given as {LAYOUT_OF[verb]} {words!r}"
    return "a value with spaces needs quotes"

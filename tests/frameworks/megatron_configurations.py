"""Random command lines in Megatron-LM's own terms: flags that users give, right or wrong, that no plan of ours stands behind."""

from __future__ import annotations

import random
from shlex import join

from meshwright.domain.case import Case
from meshwright.domain.layout import Layout
from meshwright.frameworks.megatron.arguments import data_arguments
from meshwright.frameworks.megatron.flags import Arguments, parse_version, surface
from meshwright.frameworks.megatron.model_arguments import add_model

ENVIRONMENT = {
    "NORM_EPSILON": "1e-5", "INIT_STD": "0.02", "ROTARY_BASE": "10000", "MOE_AUX_LOSS_COEFFICIENT": "1e-3",
    "ROTARY_SCALING_FACTOR": "1.0", "MSCALE": "1.0", "MSCALE_ALL_DIM": "1.0", "MTP_LOSS_FACTOR": "0.1",
}
"""What the blanks of a script stand for."""


def model_flags(case: Case, release: str) -> list[str]:
    """The model's flags, the mock data's, and a precision, as words."""
    version = parse_version(release)
    arguments = Arguments(version=version)
    add_model(arguments, case)
    mock = data_arguments(case, Layout(), version)[0]
    words: list[str] = []
    for flag, value in {**arguments.items, **mock.items}.items():
        words.append(flag)
        if value is not True:
            words += [_filled(str(each)) for each in (value if isinstance(value, tuple) else (value,))]
    return [*words, "--bf16", "--lr", "1e-4", "--train-iters", "10"]


def _filled(word: str) -> str:
    """A word with its blanks filled in."""
    if word.startswith("${"):
        return word[2:-1].split(":-")[1]
    return ENVIRONMENT[word[1:]] if word.startswith("$") else word


def random_flags(case: Case, release: str, rng: random.Random) -> list[str]:
    """Flags of a layout, drawn one by one; most draws are plausible, some are wrong."""
    model = case.model
    pp, tp = rng.choice((1, 1, 2, 4, 8)), rng.choice((1, 1, 2, 4, 8, 3))
    flags: dict[str, tuple[object, ...]] = {
        "--tensor-model-parallel-size": (tp,), "--pipeline-model-parallel-size": (pp,),
        "--micro-batch-size": (rng.choice((1, 2, 4, 3)),),
        "--seq-length": (case.batch.sequence_tokens,), "--global-batch-size": (case.batch.global_batch_sequences,),
    }

    def sometimes(share: float, flag: str, *values: object) -> None:
        if rng.random() < share and surface().find(flag, release):
            flags[flag] = values

    sometimes(0.7, "--sequence-parallel")
    sometimes(0.25, "--context-parallel-size", rng.choice((2, 4, 3)))
    sometimes(0.2, "--cp-comm-type", rng.choice(("p2p", "a2a", "all_gather")))
    sometimes(0.6, "--use-distributed-optimizer")
    sometimes(0.5, "--overlap-grad-reduce")
    sometimes(0.3, "--overlap-param-gather")
    sometimes(0.1, "--num-distributed-optimizer-instances", 2)
    sometimes(0.1, "--tp-comm-overlap")
    if pp > 1:
        _stages(model.num_layers, pp, rng, sometimes)
    _recompute(rng, sometimes)
    if model.is_moe:
        sometimes(0.7, "--expert-model-parallel-size", rng.choice((2, 4, 8, 3)))
        sometimes(0.5, "--expert-tensor-parallel-size", rng.choice((1, 2, 4)))
        sometimes(0.6, "--moe-token-dispatcher-type", rng.choice(("alltoall", "allgather")))
        sometimes(0.5, "--moe-grouped-gemm")
        sometimes(0.15, "--overlap-moe-expert-parallel-comm")
    elif rng.random() < 0.05:
        flags["--expert-model-parallel-size"] = (2,)
    sometimes(0.1, "--use-precision-aware-optimizer")
    sometimes(0.08, "--optimizer-cpu-offload")
    if rng.random() < 0.12:
        sometimes(1, "--use-megatron-fsdp")
        sometimes(0.8, "--data-parallel-sharding-strategy", rng.choice(("optim", "optim_grads", "optim_grads_params")))
        sometimes(0.9, "--ckpt-format", "fsdp_dtensor")
        sometimes(0.8, "--no-gradient-accumulation-fusion")
    return [word for flag, values in flags.items() for word in (flag, *map(str, values))]


def _stages(layers: int, pp: int, rng: random.Random, sometimes: object) -> None:
    """Virtual stages and uneven ends in each of their spellings, one of them or (seldom) two."""
    assert callable(sometimes)
    kind = rng.choice(("plain", "plain", "size", "count", "string", "ends", "accounted", "mixed"))
    if kind in {"size", "mixed"}:
        sometimes(1, "--num-layers-per-virtual-pipeline-stage", rng.choice((1, 2, 4, 5)))
    if kind in {"count", "mixed"}:
        sometimes(1, "--num-virtual-stages-per-pipeline-rank", rng.choice((2, 3, 4)))
    if kind == "string":
        first = rng.choice((0, 1, 2))
        rest = layers - first
        middle, last = divmod(rest, pp - 1) if pp > 1 else (0, rest)
        cells = [f"Et*{first}" if first > 1 else "E" + "t" * first, *[f"t*{middle}"] * (pp - 2), f"t*{middle + last}L"]
        sometimes(1, "--pipeline-model-parallel-layout", "|".join(cells))
    if kind == "ends":
        sometimes(1, "--decoder-first-pipeline-num-layers", rng.choice((1, 2, layers // pp - 1, layers // pp)))
        sometimes(0.7, "--decoder-last-pipeline-num-layers", rng.choice((1, 2, layers // pp - 1, layers // pp)))
    if kind == "accounted":
        sometimes(0.8, "--account-for-embedding-in-pipeline-split")
        sometimes(0.8, "--account-for-loss-in-pipeline-split")
    sometimes(0.1, "--no-overlap-p2p-communication")


def _recompute(rng: random.Random, sometimes: object) -> None:
    """Recomputation as users ask for it."""
    assert callable(sometimes)
    kind = rng.choice(("none", "none", "activations", "selective", "modules", "uniform", "block", "wrong"))
    if kind == "activations":
        sometimes(1, "--recompute-activations")
    if kind in {"selective", "modules"}:
        sometimes(1, "--recompute-granularity", "selective")
    if kind == "modules":
        modules = ("core_attn", "layernorm", "mlp", "moe_act", "mla_up_proj", "moe")
        sometimes(1, "--recompute-modules", *rng.sample(modules, rng.choice((1, 2))))
    if kind in {"uniform", "block"}:
        sometimes(1, "--recompute-granularity", "full")
        sometimes(1, "--recompute-method", kind)
        sometimes(0.9, "--recompute-num-layers", rng.choice((1, 2, 3)))
    if kind == "wrong":
        sometimes(1, "--recompute-granularity", rng.choice(("full", "selective")))
        sometimes(0.7, "--recompute-method", "uniform")


def script_of(words: list[str], world: int) -> str:
    """A launch script of a command line."""
    launcher = f"torchrun --nnodes {world // 8} --nproc-per-node 8 pretrain_gpt.py"
    return f"export CUDA_DEVICE_MAX_CONNECTIONS=1\n{launcher} {join(words)}\n"

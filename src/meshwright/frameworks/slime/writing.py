"""A layout as slime's launch script: arrays of flags for ``train.py``, which Ray runs, and its README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, flags
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.manual import common_values, readme, template, train_steps, with_launch
from meshwright.frameworks.megatron.arguments import groups
from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.slime.batch import micro_batches
from meshwright.frameworks.slime.deciding import WITHOUT
from meshwright.frameworks.slime.flags import (
    ASYNC,
    BATCH,
    CORE,
    DYNAMIC,
    MICRO,
    NODES,
    PER_NODE,
    PROGRAM,
    PROMPTS,
    RESPONSES,
    is_tuning,
)
from meshwright.frameworks.slime.guide import manual_of
from meshwright.frameworks.verl.batch import longest_tokens, responses_for, samples_of
from meshwright.frameworks.verl.rollout import rollout_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

_LEFT_OUT = frozenset({WITHOUT, BATCH, MICRO, "--seq-length", "--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl"})
"""Flags of Megatron-LM that stand elsewhere, that slime sets by itself, or that it never reads."""
_SCHEDULE = frozenset({"--min-lr", "--lr-decay-style", "--lr-warmup-fraction"})
"""Of a learning rate that falls, which that of reinforcement learning does not."""


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``run.sh`` and ``README.md``."""
    manual = manual_of(case, layout, release, options)
    values = {
        **common_values(case, layout, options), "manual": with_launch(manual, options), "tuning": is_tuning(case),
        "program": ASYNC if is_tuning(case) else PROGRAM,
        "groups": {f"{name}_ARGS": flags(words) for name, words in arguments(case, layout, options).items() if words},
    }
    script = File(path="run.sh", text=template("slime_run.sh.j2").render(values), executable=True)
    return script, readme(case, layout, options, manual)


def arguments(case: Case, layout: Layout, options: Options) -> dict[str, Values]:
    """Group -> flag -> value, in the groups of slime's own scripts."""
    tuning = is_tuning(case)
    left_out = _LEFT_OUT if tuning else _LEFT_OUT | _SCHEDULE
    below = {
        name: {flag: value for flag, value in each.items.items() if flag not in left_out}
        for name, each in groups(case, layout, parse_version(CORE), options.launch).items()
    }
    below["MODEL"]["--vocab-size"] = case.model.vocabulary
    if case.model.num_mtp_layers:
        below["MODEL"]["--enable-mtp-training"] = True
    return {
        "MODEL": below["MODEL"], "CKPT": {"--hf-checkpoint": Shell("$HF_CHECKPOINT"), "--ref-load": Shell("$REF_LOAD")},
        **(_tuning(case, options) if tuning else _learning(case, options)),
        "OPTIMIZER": {**below["OPTIMIZER"], **({} if tuning else {"--lr-decay-style": "constant"})},
        "PERF": {**below["LAYOUT"], **_cut(case, layout), **below["SHARDING"]},
        "MISC": {**below["PRECISION"], **below.get("LAUNCH", {})},
        **({} if tuning else {"SGLANG": _engine(case, layout)}), "ACTOR": _actor(tuning),
    }


def _cut(case: Case, layout: Layout) -> Values:
    """The micro-batch, and the cap where it is read."""
    found = micro_batches(case, layout)
    return found if DYNAMIC in found else {MICRO: found[MICRO]}


def _actor(tuning: bool) -> Values:
    """The devices, on which the engines take their turns where there are any."""
    devices = Shell("$DEVICES_PER_NODE")
    return {NODES: Shell("$NODES"), PER_NODE: devices, **({} if tuning else {"--num-gpus-per-node": devices, "--colocate": True})}


def _step(case: Case, options: Options, responses: int) -> dict[str, object]:
    """One optimizer step for each rollout; the length only stands for one, and Megatron-LM asks that there be positions for it."""
    samples = samples_of(case)
    return {
        "--prompt-data": Shell("$PROMPT_DATA"), "--input-key": Shell("$INPUT_KEY"), "--rollout-shuffle": True,
        "--num-rollout": train_steps(case, options), PROMPTS: samples // responses, RESPONSES: responses, BATCH: samples,
        "--balance-data": True, "--seq-length": longest_tokens(case),
    }


def _learning(case: Case, options: Options) -> dict[str, Values]:
    """Prompts, responses and the loss of GRPO."""
    longest = longest_tokens(case)
    return {
        "ROLLOUT": {
            **_step(case, options, responses_for(samples_of(case))), "--label-key": Shell("$LABEL_KEY"),
            "--apply-chat-template": True, "--rm-type": Shell("$RM_TYPE"), "--rollout-max-prompt-len": longest // 4,
            "--rollout-max-response-len": longest - longest // 4, "--rollout-max-context-len": longest, "--rollout-temperature": 1,
        },
        "GRPO": {
            "--advantage-estimator": "grpo", "--use-kl-loss": True, "--kl-loss-coef": 0.001, "--kl-loss-type": "low_var_kl",
            "--entropy-coef": 0.0, "--eps-clip": 0.2, "--eps-clip-high": 0.28,
        },
    }


def _tuning(case: Case, options: Options) -> dict[str, Values]:
    """Conversations, of which nothing is generated: no flag cuts them."""
    return {"SFT": {
        "--rollout-function-path": "slime.rollout.sft_rollout.generate_rollout", **_step(case, options, 1),
        "--loss-type": "sft_loss", "--calculate-per-token-loss": True,
        "--disable-compute-advantages-and-returns": True, "--debug-train-only": True,
    }}


def _engine(case: Case, layout: Layout) -> Values:
    """The rollout engine beside the trainer."""
    rollout = rollout_of(case, layout)
    return {"--rollout-num-gpus-per-engine": rollout.tensor_parallel, "--sglang-mem-fraction-static": rollout.utilization}

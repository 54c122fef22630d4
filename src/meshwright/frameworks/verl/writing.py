"""A plan as verl's files: a script of Hydra's words for GRPO or SFT, and its README."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, Written, word
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.manual import common_values, readme, template, train_steps, with_launch
from meshwright.frameworks.verl.batch import longest_tokens, prompts_for, responses_for, samples_of
from meshwright.frameworks.verl.guide import manual_of
from meshwright.frameworks.verl.keys import ACTOR, DP, MCORE, REFERENCE, RL_PROGRAM, ROLLOUT, SFT_PROGRAM, is_tuning
from meshwright.frameworks.verl.rollout import rollout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

_PLAIN = re.compile(r"[\w./+-]+")


def write(
    engine: str, decide: Callable[[Case, Layout, str], Values], added: frozenset[str], case: Case, layout: Layout, release: str,
    options: Options,
) -> tuple[File, ...]:
    """``run.sh`` and ``README.md``."""
    tuning = is_tuning(case)
    decided = {**decide(case, layout, release), **options.launch.keys}
    groups = (_tuning if tuning else _learning)(engine, case, layout, release, options, decided)
    manual = manual_of(engine, case, layout, release)
    values = {
        **common_values(case, layout, options), "manual": with_launch(manual, options), "tuning": tuning,
        "program": SFT_PROGRAM if tuning else RL_PROGRAM,
        "groups": {name: [_spelled(key, value, added) for key, value in words.items()] for name, words in groups.items()},
    }
    script = File(path="run.sh", text=template("verl_run.sh.j2").render(values), executable=True)
    return script, readme(case, layout, options, manual)


def hydra_word(value: object) -> str:
    """A value as Hydra's grammar reads it: texts with other characters stand between quotes.

    >>> hydra_word(True), hydra_word(None), hydra_word(["a", 1]), hydra_word("Et*2|t")
    ('True', 'null', '[a,1]', '"Et*2|t"')
    """
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(hydra_word, value))}]"
    text = str(value)
    return text if not isinstance(value, str) or _PLAIN.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def _spelled(key: str, value: object, added: frozenset[str]) -> Written:
    """One word of the command: keys that no YAML has are added."""
    plus = "+" if key in added else ""
    if isinstance(value, Shell):
        return Written(f"{plus}{key}={word(value)}" if not key.startswith("-") else f"{key}={word(value)}")
    return word(f"{plus}{key}={hydra_word(value)}")


def _below(decided: Mapping[str, object], *sections: str) -> dict[str, object]:
    """The settings below some sections."""
    return {key: value for key, value in decided.items() if key.startswith(tuple(f"{section}." for section in sections))}


def _trainer(case: Case, options: Options) -> dict[str, object]:
    """Length of the run, and what becomes of it: nothing is kept unless asked for."""
    return {
        "trainer.nnodes": Shell("$NODES"), "trainer.n_gpus_per_node": Shell("$DEVICES_PER_NODE"),
        "trainer.total_training_steps": train_steps(case, options), "trainer.save_freq": Shell("$SAVE_STEPS"),
        "trainer.test_freq": -1, "trainer.logger": ["console"], "trainer.project_name": "meshwright",
        "trainer.experiment_name": Shell("$EXPERIMENT"), "trainer.default_local_dir": Shell("$CHECKPOINT_DIR"),
    }


def _learning(
    engine: str, case: Case, layout: Layout, release: str, options: Options, decided: Values,
) -> dict[str, Mapping[str, object]]:
    """Group of words -> key -> value, for GRPO: one mini-batch of prompts is one optimizer step."""
    samples, longest, rollout = samples_of(case), longest_tokens(case), rollout_of(case, layout)
    responses = responses_for(samples)
    mini = samples // responses
    prompts = prompts_for(mini, responses, layout.world if engine == "fsdp" else layout.data_parallel)
    if engine == MCORE:
        backend: dict[str, object] = (
            {"--config-name": "ppo_megatron_trainer.yaml"} if release == "0.8" else {"model_engine": MCORE}
        )
        waiting: dict[str, object] = {f"{ACTOR}.megatron.{name}_offload": True for name in ("param", "grad", "optimizer")}
        reference: dict[str, object] = {f"{REFERENCE}.megatron.param_offload": True}
    else:
        backend = {} if release == "0.8" else {"model_engine": DP}
        waiting = {} if layout.offload else {f"{ACTOR}.fsdp_config.{name}_offload": True for name in ("param", "optimizer")}
        reference = {f"{REFERENCE}.fsdp_config.param_offload": True}
    if engine == MCORE and layout.offload:
        del waiting[f"{ACTOR}.megatron.optimizer_offload"]
    log_prob = "log_prob_micro_batch_size_per_gpu"
    return {
        "ENGINE": backend,
        "DATA": {
            "algorithm.adv_estimator": "grpo", "algorithm.use_kl_in_reward": False, "data.train_files": Shell("$TRAIN_FILES"),
            "data.val_files": Shell("$VAL_FILES"), "data.train_batch_size": prompts, "data.max_prompt_length": longest // 4,
            "data.max_response_length": longest - longest // 4, "data.filter_overlong_prompts": True, "data.truncation": "error",
        },
        "MODEL": {
            "actor_rollout_ref.model.path": Shell("$MODEL_PATH"), "actor_rollout_ref.model.use_remove_padding": True,
            **_below(decided, "actor_rollout_ref.model"),
        },
        "ACTOR": {
            f"{ACTOR}.optim.lr": Shell("$LEARNING_RATE"), f"{ACTOR}.ppo_mini_batch_size": mini, f"{ACTOR}.ppo_epochs": 1,
            f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_coef": 0.001, f"{ACTOR}.kl_loss_type": "low_var_kl",
            **_below(decided, ACTOR), **waiting,
        },
        "ROLLOUT": {
            f"{ROLLOUT}.name": "vllm", f"{ROLLOUT}.n": responses, f"{ROLLOUT}.tensor_model_parallel_size": rollout.tensor_parallel,
            f"{ROLLOUT}.gpu_memory_utilization": rollout.utilization, f"{ROLLOUT}.{log_prob}": layout.microbatch_sequences,
        },
        "REFERENCE": {f"{REFERENCE}.{log_prob}": layout.microbatch_sequences, **_below(decided, REFERENCE), **reference},
        "TRAINER": {**_trainer(case, options), "trainer.val_before_train": False},
    }


def _tuning(
    engine: str, case: Case, layout: Layout, release: str, options: Options, decided: Values,
) -> dict[str, Mapping[str, object]]:
    """Group of words -> key -> value, for the SFT trainer."""
    return {
        "DATA": {
            "data.train_files": Shell("$TRAIN_FILES"), "data.val_files": Shell("$VAL_FILES"),
            "data.train_batch_size": samples_of(case), "data.max_length": longest_tokens(case), "data.pad_mode": "no_padding",
            "data.truncation": "right", **_below(decided, "data"),
        },
        "MODEL": {
            "model.path": Shell("$MODEL_PATH"), "model.use_remove_padding": True, **_below(decided, "model"),
        },
        "ENGINE": {"engine": engine, "optim": engine, "optim.lr": Shell("$LEARNING_RATE"), **_below(decided, "engine", "optim")},
        "TRAINER": _trainer(case, options),
    }

"""What slime refuses of its flags, in its own words, and what it takes although it means something else or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.asking import at, equal
from meshwright.frameworks.megatron.mistakes import CHECKS as MEGATRON_CHECKS
from meshwright.frameworks.rules import At, Mistake, checks
from meshwright.frameworks.slime.batch_mistakes import BATCHES, whole
from meshwright.frameworks.slime.flags import CORE, NAME, OPEN, own_id
from meshwright.frameworks.slime.reading import DISPATCHER, as_flags, values_of
from meshwright.frameworks.slime.rollout_mistakes import ROLLOUTS

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check
    from meshwright.frameworks.base import Values as Found
    from meshwright.frameworks.settings import Reading, Severity

_ARGUMENTS = "slime/utils/arguments.py slime_validate_args"
_MEGATRON = "slime/backends/megatron_utils/arguments.py"
_LOSS = "slime/backends/megatron_utils/loss.py"
_UNREAD = {
    "--train-iters": "rollouts are counted: --num-rollout", "--train-samples": "rollouts are counted: --num-rollout",
    "--mock-data": "samples come from --prompt-data", "--data-path": "samples come from --prompt-data",
    "--split": "samples come from --prompt-data", "--eval-iters": "--eval-prompt-data is run through once",
    "--log-throughput": "slime logs its own figures", "--log-interval": "slime logs every step",
    "--cross-entropy-loss-fusion": "slime asks the model for logits, of which it computes log-probabilities itself",
    "--cross-entropy-fusion-impl": "slime asks the model for logits, of which it computes log-probabilities itself",
    "--rampup-batch-size": "every step has --global-batch-size samples",
}
"""Flag of Megatron-LM that nothing of slime reads -> what is instead."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Megatron-LM's parser is told to leave unknown flags alone; those of SGLang have a parser of their own, with its own table."""
    if not key.startswith("-") or key.startswith(OPEN):
        return None
    return "error", "{key} is dropped without a word: neither slime nor Megatron-LM has it"


def _dropout(reading: Reading, case: Case | None) -> Iterator[Found]:
    for flag in ("--attention-dropout", "--hidden-dropout"):
        if whole(reading) and reading.source.value(flag) is None:
            yield at(None, f"{flag} 0.0", flag=flag)


def _one_stage(reading: Reading) -> bool:
    return values_of(reading).int("--pipeline-model-parallel-size", 1) == 1


def _split_context(reading: Reading) -> bool:
    return (values_of(reading).int("--context-parallel-size") or 1) > 1


def _steady_reference(reading: Reading) -> bool:
    values = values_of(reading)
    return not (values.number("--kl-loss-coef") or 0) and not (values.number("--kl-coef") or 0)


def _positive_kl(reading: Reading) -> bool:
    values = values_of(reading)
    return bool(values.number("--kl-coef")) and bool(values.number("--kl-loss-coef"))


def _no_reference(reading: Reading) -> bool:
    values = values_of(reading)
    return bool(values.number("--kl-coef")) or values.bool("--use-kl-loss")


def _endless(reading: Reading, case: Case | None) -> Iterator[Found]:
    if whole(reading) and all(reading.source.value(key) is None for key in ("--num-rollout", "--num-epoch")):
        yield at(None, "--num-rollout")


_MISTAKES = (
    *BATCHES,
    Mistake("custom-config", "attributes of {value} are set when most checks are through, whatever their names: what is there is "
            "not seen here", At("--custom-config-path", "flags"), "warning"),
    Mistake("length", "num_epoch is not set, but num_rollout is not set, please set --num-rollout or --num-epoch", _endless),
    # The loss and its reference.
    Mistake("both-kl", "Only one of kl_coef and kl_loss_coef can be set", At("--kl-coef", 0, when=_positive_kl)),
    Mistake("reference", "stat: path should be string, bytes, os.PathLike or integer, not NoneType: a reference is asked for, and "
            "--ref-load is not given",
            tuple(At(key, "--ref-load", without=("--ref-load",), when=_no_reference) for key in ("--use-kl-loss", "--kl-coef"))),
    Mistake("idle-reference", "the reference runs over every sample, and a copy of it waits on the host, for a loss whose weight "
            "is 0: only its figure is logged", At("--use-kl-loss", "no --use-kl-loss, or --kl-loss-coef", when=_steady_reference),
            "advice", _LOSS),
    Mistake("normalization", "The 'reinforce_plus_plus' and 'reinforce_plus_plus_baseline' advantage estimators require advantage "
            "normalization. Please add `--normalize-advantages` to your command.",
            At("--advantage-estimator", "--normalize-advantages", equal("reinforce_plus_plus", "reinforce_plus_plus_baseline"),
               without=("--normalize-advantages",))),
    Mistake("critic", "--advantage-estimator ppo sets offload_train, and trains a critic on the actor's GPUs: its state waits on "
            "the host by turns, which is not predicted", At("--advantage-estimator", None, equal("ppo")), "advice"),
    Mistake("two-log-probs", "use_rollout_logprobs and use_tis cannot be set at the same time.",
            At("--use-tis", "one of them", beside=("--use-rollout-logprobs",))),
    Mistake("mismatch-metrics", "custom_tis_function_path must be set when get_mismatch_metrics is set",
            At("--get-mismatch-metrics", "--custom-tis-function-path", without=("--custom-tis-function-path",))),
    Mistake("teacher", "{why}", (
        At("--use-opd", "--opd-type", without=("--opd-type",),
           values={"why": "--opd-type must be specified when --use-opd is enabled. Choose 'sglang' or 'megatron'."}),
        At("--opd-type", "--opd-teacher-load", equal("megatron"), beside=("--use-opd",), without=("--opd-teacher-load",),
           values={"why": "--opd-teacher-load is required when --opd-type=megatron. Please provide the path to the teacher model "
                          "checkpoint."}),
        At("--opd-teacher-load", "--use-opd", without=("--use-opd",),
           values={"why": "--opd-teacher-load is set but --use-opd is not enabled. Please add --use-opd flag."}),
    )),
    Mistake("mtp", "mtp_num_layers must be set when enable_mtp_training is set",
            At("--enable-mtp-training", "--mtp-num-layers", without=("--mtp-num-layers",))),
    Mistake("frozen", "You can only specify ONE of: --only-train-params-name-list, or --freeze-params-name-list.",
            At("--only-train-params-name-list", "one of them", beside=("--freeze-params-name-list",))),
    Mistake("save", "'--save' is required when save_interval is set.", At("--save-interval", "--save", without=("--save",))),
    Mistake("evaluation", "Evaluation datasets must be configured when eval_interval is set.",
            At("--eval-interval", "--eval-prompt-data", without=("--eval-prompt-data", "--eval-config"))),
    # What Megatron-LM is given.
    Mistake("decoder-layers", "decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers should be None when "
            "pipeline_model_parallel_size is 1.",
            tuple(At(f"--decoder-{end}-pipeline-num-layers", "--pipeline-model-parallel-size", when=_one_stage)
                  for end in ("first", "last")), source=_MEGATRON),
    Mistake("gathered-context", "--allgather-cp with --context-parallel-size > 1 is currently only supported for DSA attention "
            "models (DeepSeek-V3.2 and GLM-5.1).", At("--allgather-cp", "no --allgather-cp", when=_split_context,
                                              without=("--spec",)), "warning", _MEGATRON),
    Mistake("dispatcher", "--moe-token-dispatcher-type allgather does not support variable sequence length: it is replaced by "
            "alltoall with a line in the log", At(DISPATCHER, "alltoall", equal("allgather")), "warning", _MEGATRON),
    Mistake("tensor-overlap", "the buffers of --tp-comm-overlap have one size, of --seq-length tokens, and micro-batches here have "
            "any", At("--tp-comm-overlap", "no --tp-comm-overlap"), "warning", "slime/backends/megatron_utils/initialize.py"),
    Mistake("unread", "nothing reads {key}: {instead}",
            tuple(At(key, f"no {key}", values={"instead": each}) for key, each in _UNREAD.items()), "warning",
            "slime/backends/megatron_utils"),
    Mistake("dropout", "{flag} is not given, and 0.1 is Megatron-LM's default: log-probabilities are those of other networks than "
            "the rollout's", _dropout, "warning", "slime, its own scripts; Megatron-LM megatron/training/arguments.py"),
    *ROLLOUTS,
)
_WITHOUT = frozenset(f"megatron.{name}" for name in (
    "missing", "fp32", "only-some-layers", "allgather-dispatcher", "batch-default", "log-throughput",
    "launcher", "segments", "allocator-split", "accumulation", "dynamic-loader", "two-frameworks", "deepspeed-switch",
    "zero-pipeline", "deepspeed-batch", "deepspeed-checkpointing", "data-parallel", "instead", "precision-aware-alone",
))
"""Checks of Megatron-LM that ask for what slime sets by itself, or that have a form of its own here."""


def _of_core(found: Iterable[Check]) -> Iterator[Check]:
    """Megatron-LM's checks, asked of the flags as slime hands them on."""

    def scoped(check: Check) -> Check:
        def find(reading: Reading, case: Case | None) -> Iterator[Found]:
            source = as_flags(values_of(reading), case.model if case is not None else None, {})
            yield from check.find(replace(reading, source=source, version=CORE), case)

        return structs.replace(check, id=own_id(check.id), find=find)

    yield from (scoped(check) for check in found if check.id not in _WITHOUT)


CHECKS = (*checks(NAME, _MISTAKES, source=_ARGUMENTS), *_of_core(MEGATRON_CHECKS))

"""Whether files follow a piece of advice of the guides: by their layout, or by a key or variable that the advice names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from meshwright.check.context import Context
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

Follows: TypeAlias = "Callable[[Case, Layout], bool | None]"
"""True: the layout does what the rule says; False: it does not; None: the rule is not about it."""


def _by_size(case: Case, layout: Layout) -> bool:
    """The guide's table of tensor parallelism by parameters (003:44)."""
    size = total_parameters(case.model)
    wanted = (1,) if size <= 10e9 else (2, 3, 4) if size <= 50e9 else (8,)
    return layout.tensor_parallel in wanted and not 50e9 < size < 100e9


LAYOUT: Mapping[str, Follows] = {
    "chatlearn.context-from-8192": lambda c, x: x.context_parallel > 1 if c.batch.sequence_tokens >= 8192 else None,
    "chatlearn.tensor-inside-node": lambda c, x: x.tensor_parallel <= c.cluster.devices_per_node,
    "chatlearn.pipeline-below-microbatches": lambda c, x: (
        x.pipeline_parallel < x.num_microbatches if x.pipeline_parallel > 1 else None
    ),
    "chatlearn.expert-before-expert-tensor": lambda c, x: x.expert_tensor_parallel == 1 if c.model.is_moe else None,
    "chatlearn.experts-for-moe": lambda c, x: x.expert_parallel > 1 if c.model.is_moe else None,
    "chatlearn.virtual-one-or-two": lambda c, x: x.virtual_stages == 2 if x.pipeline_parallel > 1 else None,
    "chatlearn.micro-batch-one": lambda c, x: x.microbatch_sequences == 1,
    "chatlearn.overlap-off-first": lambda c, x: not (x.overlap.gradient_reduce or x.overlap.parameter_gather),
    "chatlearn.recompute-for-minimal-machines": lambda c, x: isinstance(x.recompute, NoRecompute),
    "mindspore.micro-batch-two": lambda c, x: x.microbatch_sequences == 2,
    "mindspore.distributed-optimizer": lambda c, x: x.zero_stage >= 1 if x.data_parallel > 1 else None,
    "megatron.tensor-range": lambda c, x: x.tensor_parallel in (2, 4, 8),
    "megatron.pipeline-range": lambda c, x: x.pipeline_parallel <= 16,
    "megatron.tensor-by-size": _by_size,
    "megatron.micro-batch-above-stages": lambda c, x: x.microbatch_sequences > x.pipeline_parallel > 1,
    "megatron.micro-batch-sixteen": lambda c, x: x.microbatch_sequences == 16,
    "megatron.sequence-parallel": lambda c, x: x.sequence_parallel if x.tensor_parallel > 1 else None,
    "megatron.overlap-comm": lambda c, x: x.overlap.gradient_reduce if x.data_parallel > 1 else None,
    "megatron.zero-three-under-pipeline": lambda c, x: x.zero_stage == 3 and x.pipeline_parallel > 1,
    "megatron.selective-recommended": lambda c, x: isinstance(x.recompute, Selective),
    "playbook.small-full-recompute": lambda c, x: isinstance(x.recompute, Full) if total_parameters(c.model) < 10e9 else None,
    "playbook.pure-data-parallel-512": lambda c, x: x.data_parallel < x.world if x.world >= 512 else None,
    "playbook.zero-two-with-pipeline-1024": lambda c, x: (
        x.tensor_parallel == 8 and x.zero_stage == 2 and x.pipeline_parallel > 1 if x.world >= 1024 else None
    ),
}
"""Rule -> whether a layout follows it."""

ABLE: Mapping[str, Callable[[Features], bool]] = {
    "mindspore.distributed-optimizer": lambda features: 1 in features.zero_stages,
    "megatron.sequence-parallel": lambda features: features.sequence_parallel,
    "megatron.overlap-comm": lambda features: "grad" in features.overlaps,
    "chatlearn.context-from-8192": lambda features: features.context_parallel,
    "chatlearn.experts-for-moe": lambda features: features.expert_parallel,
    "chatlearn.overlap-off-first": lambda features: len(features.overlaps) > 1,
    "megatron.selective-recommended": lambda features: "selective" in features.recompute,
    "playbook.zero-two-with-pipeline-1024": lambda features: 2 in features.zero_stages,
}
"""Rule -> whether a framework could follow it at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Keys by which files follow a rule."""

    keys: tuple[str, ...]
    wanted: Callable[[object], bool] = lambda value: True
    exists: bool = False
    """Whether the key is real; advice about a key that does not exist is silent where the framework has it after all."""


SPELLINGS: Mapping[str, Spelling] = {
    "megatron.data-parallel-flag": Spelling(keys=("--data-parallel-size",)),
    "megatron.dynamic-dataloader": Spelling(keys=("--dataloader-type",), wanted=lambda value: value == "dynamic", exists=True),
    "megatron.accumulation-flag": Spelling(keys=("--gradient-accumulation-steps",)),
    "megatron.fused-kernels-flag": Spelling(keys=("--use-fused-kernels",)),
    "megatron.flash-attention": Spelling(keys=("--use-flash-attn",), exists=True),
    "megatron.torch-compile": Spelling(keys=("--use-torch-compile",)),
    "megatron.deepspeed-flags": Spelling(keys=("--deepspeed", "--deepspeed_config")),
    "megatron.profile-flags": Spelling(keys=("--profile-step-range", "--profile-output-path")),
    "megatron.no-async-tensor": Spelling(keys=("--no-async-tensor-model-parallel-allreduce",), exists=True),
    "megatron.recompute-activations-is-full": Spelling(keys=("--recompute-activations",), exists=True),
    "megatron.zero-three-under-pipeline": Spelling(keys=("zero_optimization.stage",), wanted=lambda value: value == 3, exists=True),
    "megatron.partition-activations": Spelling(
        keys=("activation_checkpointing.partition_activations",), wanted=lambda value: value is True, exists=True
    ),
}
"""Rule -> keys by which files follow it."""
VARIABLES: Mapping[str, tuple[str, ...]] = {"megatron.nccl-busbw": ("NCCL_DEBUG",)}
"""Rule -> variables of the launch by which files follow it."""
RULES = frozenset({*LAYOUT, *SPELLINGS, *VARIABLES})
"""Rules that files can be seen to follow or not."""


def place_of(context: Context, rule: str) -> str | None:
    """Where the files follow a rule by a key or variable; None where they do not."""
    source, framework = context.reading.source, context.framework
    spelling = SPELLINGS.get(rule)
    guide = rule.partition(".")[0]
    if spelling is not None and guide in framework.facts.guides and rule not in framework.facts.other_rules:
        for key in spelling.keys:
            setting = source.settings.get(key)
            known = framework.surface is not None and framework.surface().find(key, context.reading.version) is not None
            if setting is not None and spelling.wanted(setting.value) and (spelling.exists or not known):
                return setting.place
    return next((source.environment[name].place for name in VARIABLES.get(rule, ()) if name in source.environment), None)


def follows(context: Context, rule: str) -> bool | None:
    """Whether the layout follows a rule; None where the rule is not about it, or nobody can tell."""
    judge, able = LAYOUT.get(rule), ABLE.get(rule)
    if judge is None or context.case is None or context.layout is None:
        return None
    if able is not None and not able(context.framework.features):
        return None
    return judge(context.case, context.layout)

"""What LLaMA-Factory refuses of a case and a layout, and what no file of it says, release by release."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks import divisibility
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.deepspeed.limits import SHARDS, shards
from meshwright.frameworks.llama_factory_hf.writing import OPTIMIZERS, is_packed
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned

LEAVES = frozenset({
    "DbrxForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Ernie4_5_MoeForCausalLM", "GraniteMoeForCausalLM",
    "Glm4MoeForCausalLM", "GptOssForCausalLM", "JambaForCausalLM", "JetMoeForCausalLM", "Llama4ForCausalLM", "MixtralForCausalLM",
    "OlmoeForCausalLM", "PhimoeForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM",
})
"""Classes whose mixtures stage 3 gathers whole in 0.9.4. Source: llamafactory/model/model_utils/moe.py add_z3_leaf_module."""
DEEPSPEED_RELEASES = ("0.9.4", "0.9.5", "main")


def _knobs(plan: Planned) -> Values | None:
    layout = plan.layout
    has = [
        (plan.sp, "sequence parallelism beside tensor parallelism"),
        (layout.recompute not in (NoRecompute(), Full()), "recomputing a part of the layers"),
        (layout.stage_layers is not None, "layers by stage"),
        (set(layout.offload) - {"optimizer"}, "offload of anything but the optimizer"),
    ]
    return words_if("knobs", has)


def _neat(plan: Planned) -> bool:
    """The kernel that packs takes one sequence; a dense mask (attention=math) takes any number."""
    return is_packed(plan.case) and plan.layout.attention != "math" and plan.mb > 1


def _no_leaf(plan: Planned) -> Values | None:
    name = plan.case.model.architecture
    return values_if(plan.moe and plan.zero == 3 and name not in LEAVES, architecture=name or plan.model)


def _hybrid(plan: Planned) -> Values | None:
    optimizer, gradient, parameter = plan.shards
    alike = optimizer == gradient and parameter in {1, optimizer} and optimizer in {1, plan.ranks}
    return values_if(not alike, groups=plan.shards)


_RULES = (
    Rule("precision", "bf16 and fp16 are written for LLaMA-Factory, not {precision}",
         lambda plan: plan.precision not in {"bf16", "fp16"}, "never", "training"),
    Rule("optimizer", "no optim of the Trainer is {optimizer} as it is counted here", lambda plan: plan.optimizer not in OPTIMIZERS,
         "never", "training"),
    Rule("pipeline", "the Trainer has no pipeline: {pp} stages", lambda plan: plan.pp > 1, "never"),
    Rule("context-parallel", "the Trainer has no context parallelism: cp {cp}", lambda plan: plan.cp > 1, "never"),
    Rule("expert-parallel", "the Trainer has no expert parallelism: {ep} x {etp}", lambda plan: plan.ep * plan.etp > 1, "never"),
    Rule("knobs", "LLaMA-Factory has no key for {knobs}", _knobs, "never"),
    Rule("tensor-engine", "AutoTP is DeepSpeed's: FSDP2 has no tensor parallelism here (tp {tp})", lambda plan: plan.tp > 1,
         "never", releases=("fsdp2",)),
    Rule("tensor-stage", "AutoTP goes with the stages 1 and 2 of DeepSpeed, not {zero} (tp {tp})",
         lambda plan: plan.tp > 1 and plan.zero not in {1, 2}, "start", releases=DEEPSPEED_RELEASES),
    Rule("tensor-adapters", "AutoTP shards linear layers, and adapters stand around them (tp {tp})",
         lambda plan: plan.tp > 1 and plan.task == "lora", "never"),
    Rule("tensor-experts", "AutoTP shards the linear layers of a block, not stacked experts (tp {tp})",
         lambda plan: plan.tp > 1 and plan.moe, "never"),
    Rule("key-value-heads", "{heads} key-value heads are not divisible by autotp_size {tp}", divisibility.key_value_heads, "start"),
    Rule("offload", "stage {zero} shards nothing, and offload is that of shards",
         lambda plan: plan.layout.offload and plan.zero == 0, "never"),
    Rule("offload-optimizer", "an offloaded optimizer is DeepSpeedCPUAdam, and no {optimizer}",
         lambda plan: plan.layout.offload and plan.optimizer != "adamw", "start"),
    Rule("shards", SHARDS, shards, "never", releases=DEEPSPEED_RELEASES),
    Rule("shards", "FSDP2 shards over all {ranks} ranks, and all of them alike, not over {groups}", _hybrid, "never",
         releases=("fsdp2",)),
    Rule("neat-packing", "bsz should be 1 for neat packing: {mb} sequences of a micro-batch are packs of samples", _neat, "step",
         releases=("0.9.5", "main", "fsdp2")),
    Rule("stage-3-experts", "0.9.4 marks no layers of {architecture} for stage 3 to gather whole: ranks that run different experts "
         "wait for each other", _no_leaf, "step", releases=("0.9.4",)),
    Rule("attention-kernel", "gpt-oss runs the kernel of FlashAttention-3, whatever flash_attn says",
         lambda plan: plan.layout.attention == "math" and plan.case.model.architecture == "GptOssForCausalLM", "never"),
)


@cache
def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own = limits("llama-factory-hf", _RULES, release=release)
    return (*own, *arithmetic(features, skip=("shards", "key-value-heads", "expert-grid")))

"""What is wrong with the back ends of NeMo-RL's files: their grid, what they refuse, what they take and never read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script
from meshwright.documents.source import UNKNOWN
from meshwright.errors import did_you_mean
from meshwright.frameworks.asking import at
from meshwright.frameworks.nemo_rl.asking import Asked, asks
from meshwright.frameworks.nemo_rl.keys import DTENSOR, MEGATRON, PACKING
from meshwright.frameworks.nemo_rl.reading import BOTH, NONE
from meshwright.frameworks.nemo_rl.sources import enabled
from meshwright.frameworks.rules import Mistake

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_POLICY = "nemo_rl/models/policy/lm_policy.py Policy.__init__"
_SETUP = "nemo_rl/models/megatron/setup.py"
_AUTOMODEL = "nemo_rl/models/automodel/setup.py"
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
OWN_FIELDS = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "sequence_parallel",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage", "recompute_granularity", "recompute_modules", "attention_backend", "apply_rope_fusion",
    "moe_token_dispatcher_type", "moe_permute_fusion", "moe_grouped_gemm", "pipeline_dtype", "activation_checkpointing",
)
"""Fields of Bridge's model that have a key of their own."""
UNREAD = {
    "virtual_pipeline_model_parallel_size": "there are no virtual stages", "pipeline_model_parallel_layout": "only layers of the "
    "ends have keys", "recompute_method": "full is always uniform", "recompute_num_layers": "full is always all layers",
    "micro_batch_size": "policy.train_micro_batch_size decides", "global_batch_size": "policy.train_global_batch_size decides",
    "tp_comm_overlap": "no key says it", "overlap_grad_reduce": "distributed_data_parallel_config says it",
    "overlap_param_gather": "distributed_data_parallel_config says it", "use_distributed_optimizer": "optimizer says it",
}
"""Keys below megatron_cfg that people expect there -> why nothing comes of them."""


def _back_ends(reading: Reading, case: Case | None) -> Iterator[Values]:
    asked, chosen = Asked(reading, MEGATRON), enabled(reading.source)
    if len(chosen) == 2:
        yield at(asked.setting(f"{DTENSOR}.enabled"), False, words=BOTH)
    off = [asked.value(f"{section}.enabled") is False for section in (MEGATRON, DTENSOR)]
    if all(off):
        yield at(asked.setting(f"{MEGATRON}.enabled"), True, words=NONE)


def _grid(asked: Asked) -> Iterator[Values]:
    size = asked.replica
    if not (asked.world and size) or asked.world % size == 0:
        return
    if asked.world < size:
        words = "World size ({world}) is insufficient for the parallelism configuration. Required minimum world size: PP * CP * " \
            "TP = {size}"
    else:
        words = "World size ({world}) must be divisible by PP * CP * TP ({size}). The data parallel size (DP = world_size / (PP " \
            "* CP * TP)) must be a positive integer."
    words = words.format(world=asked.world, size=size)
    yield at(asked.setting(*asked.degree_keys), f"degrees whose product divides {asked.world}", words=words)


def _experts(asked: Asked) -> Iterator[Values]:
    pp = asked.degrees[1]
    ep, etp = (asked.count(f"{MEGATRON}.expert_{name}_parallel_size", 1) for name in ("model", "tensor"))
    if asked.world and ep and etp and pp and ep * etp > 1 and asked.world % (ep * etp * pp):
        yield at(asked.setting(f"{MEGATRON}.expert_model_parallel_size"), f"ranks that divide {asked.world // pp}",
                 world=asked.world, size=ep * etp * pp)


def _sequence(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{MEGATRON}.sequence_parallel")
    if asked.degrees[0] == 1 and setting is not None and setting.value is True:
        yield at(setting, False)


def _moe_sequence(asked: Asked) -> Iterator[Values]:
    tp, ep, key = asked.degrees[0], asked.count(f"{MEGATRON}.expert_model_parallel_size"), f"{MEGATRON}.sequence_parallel"
    if tp and ep and tp > 1 and ep > 1 and asked.value(key) is False:
        yield at(asked.setting(key), True)


def _offload(asked: Asked) -> Iterator[Values]:
    there = f"{MEGATRON}.optimizer"
    on, share = asked.is_on(f"{there}.optimizer_cpu_offload"), asked.value(f"{there}.optimizer_offload_fraction")
    if on and isinstance(share, (int, float)) and not 0 < share <= 1:
        yield at(asked.setting(f"{there}.optimizer_offload_fraction"), 1.0,
                 words="optimizer_cpu_offload=True requires 0 < optimizer_offload_fraction <= 1")
    if on and asked.value(f"{there}.use_distributed_optimizer") is False:
        yield at(asked.setting(f"{there}.use_distributed_optimizer"), True,
                 words="optimizer_cpu_offload=True requires use_distributed_optimizer=True")
    kind = asked.value(f"{there}.optimizer")
    if on and isinstance(kind, str) and kind not in {"adam", "sgd"}:
        yield at(asked.setting(f"{there}.optimizer"), "adam",
                 words="optimizer_cpu_offload=True requires optimizer to be adam or sgd")
    off = asked.value(f"{there}.optimizer_cpu_offload") is False
    if off and asked.is_on(f"{there}.overlap_cpu_optimizer_d2h_h2d"):
        yield at(asked.setting(f"{there}.overlap_cpu_optimizer_d2h_h2d"), False,
                 words="overlap_cpu_optimizer_d2h_h2d=True requires optimizer_cpu_offload=True")


def _chunked(asked: Asked) -> Iterator[Values]:
    if asked.count("policy.logprob_chunk_size") and asked.value(f"{MEGATRON}.defer_fp32_logits") is False:
        yield at(asked.setting(f"{MEGATRON}.defer_fp32_logits"), True)


def _granularity(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{MEGATRON}.recompute_granularity")
    if asked.is_on(f"{MEGATRON}.activation_checkpointing") and setting is not None and setting.value not in {
        "full", "selective", UNKNOWN
    }:
        yield at(setting, "full")


def _recompute_off(asked: Asked) -> Iterator[Values]:
    on = asked.value(f"{MEGATRON}.activation_checkpointing")
    setting, modules = asked.setting(f"{MEGATRON}.recompute_granularity"), asked.setting(f"{MEGATRON}.recompute_modules")
    if on is False and setting is not None and setting.value == "selective":
        yield at(setting, None, key=setting.key, why="activation_checkpointing is false, and nothing is recomputed")
    elif modules is not None and modules.value and setting is not None and setting.value == "full":
        yield at(modules, None, key=modules.key, why="recompute_granularity full recomputes all layers")


def _modules(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{MEGATRON}.recompute_modules")
    named = setting.value if setting is not None and isinstance(setting.value, (list, tuple)) else ()
    for each in named:
        if str(each) not in MODULES:
            yield at(setting, ", ".join(MODULES), module=each, hint=did_you_mean(str(each), MODULES))


def _unread(asked: Asked) -> Iterator[Values]:
    for name, why in UNREAD.items():
        if (setting := asked.setting(f"{MEGATRON}.{name}")) is not None:
            yield at(setting, None, key=setting.key, why=why)
    if asked.is_on(key := f"{MEGATRON}.distributed_data_parallel_config.use_custom_fsdp"):
        yield at(asked.setting(key), False, key=key, why="the distributed optimizer stays ZeRO-1")


def _overrides(asked: Asked) -> Iterator[Values]:
    there = f"{MEGATRON}.model_overrides"
    for name in OWN_FIELDS:
        if (setting := asked.setting(f"{there}.{name}")) is not None:
            yield at(setting, None, name=name)


def _dispatcher(asked: Asked) -> Iterator[Values]:
    kind, ep = asked.value(f"{MEGATRON}.moe_token_dispatcher_type"), asked.count(f"{MEGATRON}.expert_model_parallel_size", 1)
    if asked.is_on(f"{MEGATRON}.moe_enable_deepep") and isinstance(kind, str) and kind != "flex":
        yield at(asked.setting(f"{MEGATRON}.moe_token_dispatcher_type"), "flex",
                 words="DeepEP backend is only supported with flex token dispatcher")
    if asked.is_on(f"{MEGATRON}.moe_shared_expert_overlap") and isinstance(kind, str) and kind != "alltoall" and ep and ep > 1:
        yield at(asked.setting(f"{MEGATRON}.moe_shared_expert_overlap"), False,
                 words="moe_shared_expert_overlap can be used only with the alltoall token dispatcher")


def _activations(asked: Asked) -> Iterator[Values]:
    key = f"{MEGATRON}.offload_modules"
    if asked.is_on(f"{MEGATRON}.fine_grained_activation_offloading") and not asked.value(key) and (
        key in asked.reading.source.settings or asked.lacks(key)
    ):
        yield at(asked.setting(key, f"{MEGATRON}.fine_grained_activation_offloading"), ["core_attn"])


def _fused(asked: Asked) -> Iterator[Values]:
    key = f"{MEGATRON}.use_fused_linear_logprobs"
    if not asked.is_on(key):
        return
    cp, setting = asked.degrees[2], asked.setting(key)
    if cp and cp > 1:
        yield at(setting, False, words="Context Parallelism is not supported with linear CE fusion loss, please set "
                 "use_fused_linear_logprobs to false")
    if asked.is_on(f"{MEGATRON}.distributed_data_parallel_config.overlap_param_gather"):
        yield at(setting, False, words="use_fused_linear_logprobs is incompatible with overlap_param_gather")
    if asked.packs:
        yield at(asked.setting(f"{PACKING}.enabled"), False, words="use_fused_linear_logprobs: not compatible with context "
                 "parallelism, sequence packing, or top-k/top-p training-time filtering")


def _draft(asked: Asked) -> Iterator[Values]:
    key = "policy.draft.enabled"
    if asked.is_on(key) and not asked.is_megatron:
        yield at(asked.setting(key), False, words="policy.draft.enabled=true is only supported with the Megatron backend.")
    if asked.is_on(key) and asked.packs:
        yield at(asked.setting(key), False, words="policy.draft.enabled=true does not support sequence packing yet.")


def _precision_aware(asked: Asked) -> Iterator[Values]:
    there = f"{MEGATRON}.optimizer"
    if asked.value("policy.precision") == "bfloat16" and asked.is_on(f"{there}.use_precision_aware_optimizer") and (
        asked.value(f"{there}.bf16") is False
    ):
        yield at(asked.setting(f"{there}.bf16"), True)


def _dtensor_context(asked: Asked) -> Iterator[Values]:
    (tp, _, cp), key = asked.degrees, f"{DTENSOR}.sequence_parallel"
    if tp and tp > 1 and cp and cp > 1 and asked.is_on(key):
        yield at(asked.setting(key), False)


def _first_worker(asked: Asked) -> Iterator[Values]:
    """What the first worker, which is the default without ``_v2``, has not got."""
    key = f"{DTENSOR}._v2"
    if asked.is_on(key) or (asked.value(key) is None and not asked.lacks(key)):
        return
    if asked.is_on(f"{DTENSOR}.lora_cfg.enabled"):
        yield at(asked.setting(key), True, words="LoRA is not supported for DTensorPolicyWorker V1")
    if (asked.count(f"{DTENSOR}.dp_replicate_size", 1) or 1) > 1:
        yield at(asked.setting(key), True, words="dp_replicate_size > 1 requires policy.dtensor_cfg._v2: true (Automodel DTensor "
                 "v2 "
                 "backend). HSDP is not supported with the V1 DTensor worker.")


def _replicate(asked: Asked) -> Iterator[Values]:
    (tp, _, cp), ep = asked.degrees, asked.count(f"{DTENSOR}.expert_parallel_size", 1)
    size = asked.count(f"{DTENSOR}.dp_replicate_size", 1)
    if asked.world and tp and cp and ep and size:
        dp = asked.world // (tp * cp * ep)
        if dp % size:
            yield at(asked.setting(f"{DTENSOR}.dp_replicate_size"), 1, dp=dp, size=size)


def _single(asked: Asked) -> Iterator[Values]:
    if asked.world == 1 and asked.is_on(f"{DTENSOR}.cpu_offload"):
        yield at(asked.setting(f"{DTENSOR}.cpu_offload"), False)


def _idle_sequence(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{DTENSOR}.sequence_parallel")
    if asked.degrees[0] == 1 and setting is not None and setting.value is True:
        yield at(setting, False)


def _triton(asked: Asked) -> Iterator[Values]:
    tp, key = asked.degrees[0], f"{DTENSOR}.lora_cfg.use_triton"
    if tp and tp > 1 and asked.is_on(f"{DTENSOR}.lora_cfg.enabled") and asked.is_on(key):
        yield at(asked.setting(key), False)


def _architectures(asked: Asked) -> Iterator[Values]:
    source = asked.reading.source
    scripts = [each for each in source.documents if is_script(each.path)]
    if scripts and source.program and "TORCH_CUDA_ARCH_LIST" not in source.environment:
        yield at(None, "9.0 10.0")


def engine_mistakes(section: str) -> tuple[Mistake, ...]:
    """Those of one back end."""
    both = (
        Mistake("back-ends", "{words}", _back_ends, source=_POLICY),
        Mistake("grid", "{words}", asks(section, _grid), source=_POLICY),
        Mistake("draft", "{words}", asks(section, _draft), source=_POLICY),
    )
    if section == DTENSOR:
        return (
            *both,
            Mistake("context-sequence", "It's a known issue that context parallel can't be used together with sequence parallel in "
                    "DTensor worker. Please either set cp_size = 1 or disable sequence parallel.", asks(section, _dtensor_context),
                    source=f"{_AUTOMODEL}; NeMo-RL issue 659"),
            Mistake("first-worker", "{words}", asks(section, _first_worker), source=_POLICY),
            Mistake("replicate", "Data parallel size ({dp}) must be divisible by dp_replicate_size ({size}).",
                    asks(section, _replicate), source=f"{_AUTOMODEL} setup_distributed"),
            Mistake("single", "CPUOffload doesn't work on single GPU for AutoModel.", asks(section, _single),
                    source=f"{_AUTOMODEL} setup_distributed"),
            Mistake("idle-sequence", "sequence_parallel=True, but tp_size=1 which has no effect.", asks(section, _idle_sequence),
                    "warning", _AUTOMODEL),
            Mistake("triton", "Triton is not supported when tensor_parallel_size > 1", asks(section, _triton), source=_AUTOMODEL),
        )
    return (
        *both,
        Mistake("expert-ranks", "world_size ({world}) is not divisible by expert_tensor_model_pipeline_parallel size ({size}): "
                "NeMo-RL "
                "takes it, and Megatron-Core stops at the start", asks(section, _experts),
                source="megatron/core/parallel_state.py initialize_model_parallel"),
        Mistake("sequence-alone", "Cannot use sequence parallelism without tensor parallelism", asks(section, _sequence),
                source="Megatron-Core ModelParallelConfig.__post_init__"),
        Mistake("expert-sequence", "During training, performance may degrade if MoE and tensor parallelism are enabled without "
                "also "
                "enabling sequence parallelism.", asks(section, _moe_sequence), source=
                "megatron/core/transformer/moe/moe_layer.py"),
        Mistake("optimizer-offload", "{words}", asks(section, _offload), source=f"{_SETUP} _validate_optimizer_config"),
        Mistake("chunked-logits", "defer_fp32_logits must be True if logprob_chunk_size is set", asks(section, _chunked),
                source=f"{_SETUP} _validate_chunking_config"),
        Mistake("granularity", "Invalid recompute_granularity: '{value}'. Valid options are 'full' or 'selective'.",
                asks(section, _granularity), source=f"{_SETUP} _apply_performance_config"),
        Mistake("recompute-unread", "{key} has no effect: {why}", asks(section, _recompute_off), "warning",
                f"{_SETUP} _apply_performance_config"),
        Mistake("recompute-module", "recompute_modules names {module}, which nothing validates here and Megatron-Core does not "
                "know{hint}", asks(section, _modules), "warning", f"{_SETUP} _apply_performance_config; NeMo-RL issue 2291"),
        Mistake("unread", "{key} is taken, and read by nothing: {why}", asks(section, _unread), "warning", _SETUP),
        Mistake("overrides", "policy.megatron_cfg.model_overrides.{name} conflicts with policy.megatron_cfg.{name}. Set the "
                "first-class "
                "field directly instead.", asks(section, _overrides), source=f"{_SETUP} _validate_model_override_conflicts"),
        Mistake("dispatcher", "{words}", asks(section, _dispatcher), source="megatron/core/transformer/transformer_config.py"),
        Mistake("activation-offload", "offload_modules must be a non-empty list when fine_grained_activation_offloading is True.",
                asks(section, _activations), source=f"{_SETUP} _apply_performance_config"),
        Mistake("fused-logprobs", "{words}", asks(section, _fused), source=_SETUP),
        Mistake("precision-aware", "policy.megatron_cfg.optimizer.bf16=True must be set if policy.precision=bfloat16 when using "
                "use_precision_aware_optimizer=True", asks(section, _precision_aware), source=f"{_SETUP} _validate_dtype_config"),
        Mistake("architectures", "TORCH_CUDA_ARCH_LIST is not set. This is required in Megatron backend: NeMo-RL's container sets "
                "it",
                asks(section, _architectures), "advice", _POLICY),
    )

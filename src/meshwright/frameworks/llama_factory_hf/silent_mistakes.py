"""What LLaMA-Factory takes although it is wrong or does nothing, and what no prediction here counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import at, count_of, equal, is_false, is_not_true, is_true, other_than, place_of
from meshwright.frameworks.llama_factory_hf.reading import MICROBATCH
from meshwright.frameworks.llama_factory_hf.sources import ACCELERATE, launchers
from meshwright.frameworks.rules import At, Mistake

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

LORA_RANK = 8
"""``lora_rank`` where it is not said."""
_LIGER = frozenset({
    "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "GlmForCausalLM",
    "Glm4ForCausalLM", "Glm4vForConditionalGeneration", "GraniteForCausalLM", "LlamaForCausalLM", "LlavaForConditionalGeneration",
    "MistralForCausalLM", "MixtralForCausalLM", "MllamaForConditionalGeneration", "Olmo2ForCausalLM",
    "PaliGemmaForConditionalGeneration", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration", "GptOssForCausalLM",
})
"""Classes of model_utils/liger_kernel.py at ff6d4d12."""
_ADAPTERS = ("lora_rank", "lora_alpha", "lora_dropout", "lora_target", "additional_target", "create_new_adapter")
_ALLOCATOR, _SEGMENTS = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
_RECOMPUTES = f"{ACCELERATE}fsdp_config.fsdp_activation_checkpointing"


def _neat_batch(reading: Reading, case: Case | None) -> Iterator[Values]:
    """Packs under FlashAttention-2: the micro-batch, eight where it is not said."""
    source = reading.source
    if source.value("neat_packing") is not True or source.value("flash_attn") != "fa2":
        return
    found = count_of(reading, "per_device_train_batch_size", MICROBATCH)
    if found > 1:
        place = place_of(reading, "per_device_train_batch_size", "neat_packing")
        yield {"value": found, "expected": 1, "path": place}


def _no_precision(reading: Reading, case: Case | None) -> Iterator[Values]:
    source = reading.source
    if source.value("do_train") is True and not any(source.value(key) is True for key in ("bf16", "fp16", "pure_bf16")):
        yield {"value": None, "expected": "bf16: true", "path": place_of(reading, "do_train")}


def _rank(reading: Reading, case: Case | None) -> Iterator[Values]:
    """The rank of the adapters that are predicted, where the files have another."""
    source = reading.source
    if case is None or case.training.lora is None or source.value("finetuning_type", "lora") != "lora":
        return
    found = count_of(reading, "lora_rank", LORA_RANK)
    if found != case.training.lora.rank:
        yield {
            "value": found, "expected": case.training.lora.rank, "path": place_of(reading, "lora_rank", "finetuning_type"),
            "rank": case.training.lora.rank,
        }


def _liger(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("enable_liger_kernel")
    if setting is not None and setting.value is True and case is not None:
        name = case.model.architecture
        if name and name not in _LIGER:
            yield at(setting, False, model=case.model.name)


def _rendezvous(reading: Reading, case: Case | None) -> Iterator[Values]:
    """Nodes that all wait at their own address."""
    environment = reading.source.environment
    nodes = environment.get("NNODES")
    count = str(nodes.value) if nodes is not None and nodes.value is not UNKNOWN else "1"
    if nodes is not None and count not in {"1", "None"} and "MASTER_ADDR" not in environment and _by_cli(reading):
        yield at(nodes, "MASTER_ADDR")


def _allocator(reading: Reading, case: Case | None) -> Iterator[Values]:
    environment = reading.source.environment
    setting, optimized = environment.get(_ALLOCATOR), environment.get("OPTIM_TORCH")
    is_off = optimized is not None and str(optimized.value).lower() in {"0", "false"}
    if setting is not None and setting.value not in (_SEGMENTS, None, UNKNOWN) and not is_off and _by_cli(reading):
        yield at(setting, "OPTIM_TORCH=0", segments=_SEGMENTS)


def _by_cli(reading: Reading) -> bool:
    return bool(set(launchers(reading.source)) & {"llamafactory-cli", "lmf"})


def _dense_mask(reading: Reading) -> bool:
    return reading.source.value("flash_attn") != "fa2"


SILENT = (
    Mistake("mixed-samples", "packing without neat_packing: samples of a pack attend to those before them, which are other samples",
            At("packing", "neat_packing: true", is_true, beside={"neat_packing": is_not_true, "stage": equal(None, "sft")}),
            "warning", "llamafactory/data/processor/supervised.py"),
    Mistake("dense-mask", "neat_packing without flash_attn: fa2 makes a mask of sequence x sequence for every pack: no flash "
            "kernel takes one", At("neat_packing", "flash_attn: fa2", is_true, when=_dense_mask), "warning",
            "llamafactory/data/collator.py"),
    Mistake("neat-batch", "bsz should be 1 for neat packing: per_device_train_batch_size is {value}, which the first step refuses",
            _neat_batch, source="llamafactory/data/collator.py", releases=("0.9.5", "main", "fsdp2")),
    Mistake("neat-version", "Neat packing is incompatible with transformers>=4.53.0.",
            At("neat_packing", "transformers 4.52", is_true), "advice", "llamafactory/hparams/parser.py", releases=("0.9.4",)),
    Mistake("packing-length", "stage pt packs by itself; packing: true makes its blocks one token shorter than cutoff_len",
            At("packing", None, is_true, beside={"stage": equal("pt")}), "advice", "llamafactory/hparams/data_args.py"),
    Mistake("padding", "stage pt with packing: false: each text is cut to cutoff_len, or padded to the longest of its micro-batch",
            At("packing", None, is_false, beside={"stage": equal("pt")}), "advice", "llamafactory/data/processor/pretrain.py"),
    Mistake("checkpointing", "gradient_checkpointing: false switches nothing off: LLaMA-Factory recomputes every layer unless "
            "disable_gradient_checkpointing is true",
            At("gradient_checkpointing", "disable_gradient_checkpointing: true", is_false,
               beside={"disable_gradient_checkpointing": is_not_true}), "warning",
            "llamafactory/model/model_utils/checkpointing.py"),
    Mistake("recomputed-twice", "fsdp_activation_checkpointing and LLaMA-Factory's own recompute every layer twice: give one",
            At(_RECOMPUTES, False, is_true, beside={"disable_gradient_checkpointing": is_not_true}), "warning",
            "llamafactory/model/model_utils/checkpointing.py"),
    Mistake("checkpoints-on-host", "{key} does nothing where disable_gradient_checkpointing is true",
            tuple(At(key, False, is_true, beside={"disable_gradient_checkpointing": is_true})
                  for key in ("use_unsloth_gc", "use_reentrant_gc")), "warning",
            "llamafactory/model/model_utils/checkpointing.py"),
    Mistake("precision", "We recommend enable mixed precision training: without bf16 and fp16 it computes in FP32", _no_precision,
            "warning", "llamafactory/hparams/parser.py"),
    Mistake("pure-bf16", "pure_bf16 keeps weights, gradients and moments in BF16 alone: the prediction counts them in FP32",
            At("pure_bf16", None, is_true), "advice", "llamafactory/model/adapter.py"),
    Mistake("quantized-weights", "the base weights are of {value} bits: the prediction counts them in 16",
            At("quantization_bit", None, other_than(None)), "advice", "llamafactory/model/model_utils/quantization.py"),
    Mistake("fp8", "fp8: linear layers compute in FP8; the prediction is of bf16", At("fp8", None, is_true), "advice",
            "llamafactory/train/fp8_utils.py"),
    Mistake("liger", "enable_liger_kernel: norms, gates and the loss are fused, and the logits are never whole: the prediction "
            "counts plain modules, which take more time and memory", At("enable_liger_kernel", None, is_true), "advice",
            "llamafactory/model/model_utils/liger_kernel.py"),
    Mistake("liger-model", "Current model does not support liger kernel: {model} runs without it", _liger, "warning",
            "llamafactory/model/model_utils/liger_kernel.py"),
    Mistake("unread", "nothing reads {key}: finetuning_type is full",
            tuple(At(key, None, beside={"finetuning_type": equal("full")}) for key in _ADAPTERS), "advice",
            "llamafactory/model/adapter.py"),
    Mistake("rank", "lora_rank is {value}: the prediction is of rank {rank}", _rank, "advice", "llamafactory/model/adapter.py"),
    Mistake("batch-search", "auto_find_batch_size halves the micro-batch where memory runs out, and the global batch with it",
            At("auto_find_batch_size", False, is_true), "advice", "transformers/trainer.py"),
    Mistake("rendezvous", "NNODES is {value} and MASTER_ADDR is not set: every node waits at 127.0.0.1 for the others", _rendezvous,
            source="llamafactory/launcher.py"),
    Mistake("allocator", "llamafactory-cli sets PYTORCH_CUDA_ALLOC_CONF to {segments} over {value}, unless OPTIM_TORCH is 0",
            _allocator, "warning", "llamafactory/launcher.py"),
)

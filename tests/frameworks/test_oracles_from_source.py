"""As ``test_oracles``, for frameworks that have no wheel: each test needs a checkout (``MESHWRIGHT_<NAME>_SOURCE``)."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml
from oracles_run import in_order, judge, needs, source

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@needs("nanotron")
def test_nanotron():
    template = yaml.safe_load(Path(source("nanotron"), "examples", "config_tiny_llama.yaml").read_text())

    def document(world, model=None, tokens=None, **parallelism):
        given = copy.deepcopy(template)
        given["parallelism"] |= parallelism
        given["model"]["model_config"] |= {"num_attention_heads": 16, "num_key_value_heads": 8} | (model or {})
        given["tokens"] |= tokens or {}
        return {"files": {"run.yaml": yaml.safe_dump(given)}, "world": world}

    verdicts = in_order("nanotron", [
        (document(8, dp=4, tp=2, pp=1), ""),
        (document(16, dp=4, tp=2, pp=1), "TP*CP*DP*PP=2*1*1*4=8 != WORLD_SIZE=16"),
        (document(8, model={"num_key_value_heads": 2}, dp=2, tp=4, pp=1), "num_key_value_heads (2) must be >= tp (4)"),
        (document(9, dp=3, tp=3, pp=1), "num_attention_heads (16) must be divisible by tp (3)"),
        (document(8, dp=1, tp=1, pp=8, pp_engine="1f1b", tokens={"batch_accumulation_per_replica": 1}),
         "Number of microbatches (1) must be at least PP_SIZE-1=7 when using the OneForwardOneBackwardPipelineEngine"),
        (document(8, dp=4, tp=2, pp=1, pp_engine="interleaved"),
         "pp_engine should be a string selected in ['afab', '1f1b'] and not interleaved"),
        (document(8, dp=4, tp=2, pp=1, tp_mode="SEQUENCE"), "KeyError: 'SEQUENCE'"),
        (document(8, dp=4, tp=2, pp=1, sp=1), 'can not match "sp" to any data class field'),
        (document(24, dp=4, tp=2, pp=1, context_parallel_size=3, tokens={"sequence_length": 4096}),
         "Sequence length 4096 must be divisible by 6"),
    ])
    assert verdicts[0]["config"]["config"]["parallelism"]["tp"] == 2


@needs("chatlearn")
def test_chatlearn():
    template = yaml.safe_load(Path(source("chatlearn"), "template", "grpo_megatron.yaml").read_text())

    def document(runtime=None, policy=None, **trainer):
        given = copy.deepcopy(template)
        given["runtime_args"] |= runtime or {}
        given["models"]["policy_trainer"] |= {"num_gpu": 8, "max_token_in_packing": 4096} | trainer
        given["models"]["policy"] |= policy or {}
        return {"files": {"run.yaml": yaml.safe_dump(given)}, "world": 8}

    in_order("chatlearn", [
        (document(tensor_model_parallel_size=4, pipeline_model_parallel_size=2), ""),
        (document({"train_global_batch_size": 100}),
         "runtime_args.train_global_batch_size (100) must be divisible by models.policy_trainer.num_replica (1) "
         "times models.policy_trainer.replica_dp_size (8)."),
        (document({"train_micro_batch_size": 3}, packing=False), "must be divisible by runtime_args.train_micro_batch_size (3)."),
        (document(policy={"tensor_model_parallel_size": 3}),
         "models.policy.num_gpu must be divisible by tensor_model_parallel_size"),
        (document(tensor_parallel=8),
         "MegatronPolicyTrainerConfig.__init__() got an unexpected keyword argument 'tensor_parallel'"),
        (document({"train_gbs": 8}), "Key 'train_gbs' not in 'RuntimeConfig'"),
        (document(max_token_in_packing="${models.policy_trainer.seq_length}"),
         "Interpolation key 'models.policy_trainer.seq_length' not found"),
    ])


@needs("megatron-deepspeed")
def test_megatron_deepspeed():
    always = (
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
        "--micro-batch-size 1 --train-iters 10 --lr 1e-4 --bf16 --deepspeed --deepspeed_config ds.json"
    )

    def flags(words, world=64, batch=64, **environment):
        return {"argv": f"{always} --global-batch-size {batch} {words}".split(), "world": world, "env": environment}

    alone = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    verdicts = in_order("megatron-deepspeed", [
        (flags("--tensor-model-parallel-size 8 --sequence-parallel --zero-stage 1", **alone), ""),
        (flags("--tensor-model-parallel-size 8", 60), "world size (60) is not divisible by tensor model parallel size (8)"),
        (flags("--zero-stage 3"), "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"),
        (flags("--zero-stage 3 --no-pipeline-parallel"), ""),
        (flags("--pipeline-model-parallel-size 2 --no-pipeline-parallel"),
         "pipeline_model_parallel_size must be 1 if pipeline parallel is disabled"),
        (flags("--tensor-model-parallel-size 2 --sequence-parallel", CUDA_DEVICE_MAX_CONNECTIONS="8"),
         "CUDA_DEVICE_MAX_CONNECTIONS to 1"),
        (flags("--context-parallel-size 2"), "unrecognized arguments: --context-parallel-size 2"),
        (flags("", batch=63), "global batch size (63) is not divisible by micro batch size (1) times data parallel size (64)"),
    ])
    assert verdicts[0]["config"]["data_parallel_size"] == 8


@needs("picotron")
def test_picotron():
    template = json.loads(Path(source("picotron"), "template", "base_config.json").read_text())

    def document(world, **distributed):
        given = copy.deepcopy(template)
        given["distributed"] |= distributed
        given["environment"]["HF_TOKEN"] = "none"
        return {"files": {"run.json": json.dumps(given)}, "world": world}

    verdicts = in_order("picotron", [
        (document(16, dp_size=2, pp_size=8), ""),
        (document(8, dp_size=2, tp_size=2), "world_size must be equal to tp_size * pp_size * dp_size * cp_size"),
        (document(3, cp_size=3), "seq_length must be divisible by cp_size for Context Parallelism"),
        (document(3, tp_size=3), "num_attention_heads should be divisible by tp world size"),
        (document(32, pp_size=32), "Some ranks has no layers."),
        (document(2, pp_size=2, pp_engine="interleaved"), "Invalid pipeline parallel engine: interleaved"),
        (document(1, use_cpu=True), "Kernel operations requires dtype=torch.bfloat16"),
    ])
    assert verdicts[0]["config"]["layers"][7] == [14, 15]


@needs("llama-factory")
def test_llama_factory():
    template = yaml.safe_load(Path(source("llama-factory"), "examples", "train_full", "qwen3_full_sft.yaml").read_text())
    del template["deepspeed"]

    def document(engine=None, *, without=(), words=(), **given):
        values = {key: value for key, value in (template | given).items() if key not in without}
        files = {"train.yaml": yaml.safe_dump(values | ({"deepspeed": "ds.json"} if engine else {}))}
        return {"files": files | ({"ds.json": json.dumps(engine)} if engine else {}), "argv": ["train.yaml", *words], "world": 8}

    stage_3 = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "zero_optimization": {"stage": 3}}
    verdicts = in_order("llama-factory", [
        (document(stage_3), ""),
        (document(words=["per_device_train_batch_size=3", "disable_gradient_checkpointing=true"]), ""),
        (document(expert_tensor_parallel_size=2),
         "Some keys are not used by the HfArgumentParser: ['expert_tensor_parallel_size']"),
        (document(stage="pt", neat_packing=True), "`neat_packing` cannot be set as True except SFT."),
        (document(streaming=True, max_samples=None), "Please specify `max_steps` in streaming mode."),
        (document(without=("dataset",)), "Please specify dataset for training."),
        (document(do_eval=True), "Please make sure eval_dataset be provided or val_size >1e-6"),
        (document(use_galore=True, galore_layerwise=True), "Distributed training does not support layer-wise GaLore."),
        (document(stage_3, use_galore=True), "GaLore and APOLLO are incompatible with DeepSpeed yet."),
        (document(stage_3, pure_bf16=True), "`pure_bf16` is incompatible with DeepSpeed ZeRO-3."),
        (document(use_badam=True), "Layer-wise BAdam only supports DeepSpeed ZeRO-3 training."),
        (document(use_dora=True), "`use_dora` is only valid for LoRA training."),
        (document(quantization_bit=4), "Quantization is only compatible with the LoRA or OFT method."),
        (document(fp16=True), "At most one of fp16 and bf16 can be True, but not both"),
    ])
    assert (verdicts[1]["config"]["micro"], verdicts[1]["config"]["recomputes"]) == (3, False)
    (refused,) = judge("llama-factory", [document(stage_3 | {"train_batch_size": 7})])
    assert (refused["by"], "train_batch_size=7 vs hf train_batch_size (calculated)=16" in refused["why"]) == ("repeated", True)


@needs("llama-factory")
def test_llama_factory_with_megatron_bridge():
    template = yaml.safe_load(Path(source("llama-factory"), "examples", "megatron_bridge", "llama3_sft.yaml").read_text())
    template |= {"per_device_train_batch_size": 1, "tensor_model_parallel_size": 1}

    def document(**given):
        return {"files": {"train.yaml": yaml.safe_dump(template | given)}, "argv": ["train.yaml"], "world": 8,
                "env": {"USE_MEGATRON_BRIDGE": "1"}}

    verdicts = in_order("llama-factory", [
        (document(tensor_model_parallel_size=8, sequence_parallel=True), ""),
        (document(expert_model_parallel_size=8, gradient_accumulation_steps=8), ""),
        (document(tensor_model_parallel_size=2, pipeline_model_parallel_size=2, expert_model_parallel_size=4),
         "Total Megatron Bridge parallel size (16) exceeds `world_size` (8)."),
        (document(tensor_model_parallel_size=3), "Total Megatron Bridge parallel size (3) must divide `world_size` (8)."),
        (document(sequence_parallel=True), "`sequence_parallel` requires `tensor_model_parallel_size` > 1."),
        (document(expert_tensor_parallel_size=2), "not used by the HfArgumentParser: ['expert_tensor_parallel_size']"),
        (document(stage="dpo"), "Megatron Bridge only supports the `pt` and `sft` stages."),
        (document(quantization_bit=4), "Quantized models are not supported with Megatron Bridge."),
    ])
    assert [each["config"]["global"] for each in verdicts[:2]] == [1, 8]
    (refused,) = judge("llama-factory", [document(expert_model_parallel_size=8)])
    assert refused["by"] == "repeated"
    assert "(1) is not divisible by micro batch size (1) times data parallel size (8)" in refused["why"]


BRIDGE = """
import torch
from megatron.bridge.models import GPTModelProvider
from megatron.bridge.training.config import *


def configuration() -> ConfigContainer:
    return ConfigContainer(
        model=GPTModelProvider(
            num_layers=32, hidden_size=4096, num_attention_heads=32, num_query_groups=8, ffn_hidden_size=14336, vocab_size=128256,
            seq_length=8192, pipeline_dtype=torch.bfloat16, bf16=True, MODEL
        ),
        train=TrainingConfig(train_iters=10, global_batch_size=BATCH, micro_batch_size=1),
        validation=ValidationConfig(eval_interval=10, eval_iters=1),
        optimizer=OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True),
        scheduler=SchedulerConfig(lr_warmup_iters=1, lr_decay_iters=10),
        ddp=DistributedDataParallelConfig(use_distributed_optimizer=True),
        dataset=MockGPTDatasetConfig(
            random_seed=1, seq_length=SEQUENCE, reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False
        ),
        logger=LoggerConfig(),
        tokenizer=TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=128256),
        checkpoint=CheckpointConfig(),
    )
"""


@needs("megatron-bridge")
def test_megatron_bridge():
    def script(tp=8, pp=4, world=64, batch=512, sequence=8192, more=""):
        model = f"tensor_model_parallel_size={tp}, pipeline_model_parallel_size={pp}, {more}"
        text = BRIDGE.replace("MODEL", model).replace("BATCH", str(batch)).replace("SEQUENCE", str(sequence))
        return {"files": {"run.py": text}, "world": world}

    verdicts = in_order("megatron-bridge", [
        (script(more="sequence_parallel=True"), ""),
        (script(pp=3), "world size (64) is not divisible by total_model_size (model_cfg.tensor_model_parallel_size=8 * "
         "model_cfg.pipeline_model_parallel_size=3 * model_cfg.context_parallel_size=1)"),
        (script(batch=511),
         "eval_global_batch_size (511) must be divisible by eval_micro_batch_size * eval_data_parallel_size (1 * 2 = 2)"),
        (script(sequence=8190), "Sequence length in model config: 8192, Sequence length in dataset config: 8190"),
        (script(tp=3, world=12), "num_attention_heads (32) must be a multiple of tensor_model_parallel_size (3)."),
        (script(more="expert_model_parallel_size=2"), "num_moe_experts must be non None to use expert-parallel."),
        (script(pp=5, world=40), "divisible by"),
        (script(more="tensor_parallel=8"), "GPTModelProvider.__init__() got an unexpected keyword argument 'tensor_parallel'"),
    ])
    assert verdicts[0]["config"]["layers_of_stages"] == [[8]] * 4

"""Configurations that run out of memory, and what their runs said."""

from __future__ import annotations

from oom_texts import GIB, MIB, modern

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=WARN   # quiet

MODEL_ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --normalization RMSNorm
  --position-embedding-type rope --untie-embeddings-and-output-weights
  --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 4      # four stages
  {stages}--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
TRAIN_ARGS=(
  --bf16 --micro-batch-size 2 --global-batch-size 128   # as in the paper
  --lr 1.5e-4 --train-iters 10000 --log-interval 10
)

torchrun --nnodes 2 --nproc_per_node 8 --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" \\
  pretrain_gpt.py "${{MODEL_ARGS[@]}}" "${{PARALLEL_ARGS[@]}}" "${{TRAIN_ARGS[@]}}" --data-path "$DATA_PATH"
"""
LAST_STAGE = SCRIPT.format(stages="--decoder-first-pipeline-num-layers 4\n  --decoder-last-pipeline-num-layers 12\n  ")
"""Layers were moved away from the first stage, onto the one that also has the logits."""
FIRST_STAGE = SCRIPT.format(stages="")
"""The first stage holds four micro-batches."""
MEGATRON = ["--from", "megatron", "--model", "llama3-8b", "--device", "h100-sxm"]

LOGITS = "\n".join([
    "[2026-11-20 10:12:03] iteration        1/   10000 | consumed samples:          128 |",
    "[rank13]: Traceback (most recent call last):",
    '[rank13]:   File "/w/megatron/core/pipeline_parallel/schedules.py", line 2210, in forward_backward_pipelining_without_inter',
    "[rank13]:     output_tensor, num_tokens = forward_step(",
    '[rank13]:   File "/w/megatron/core/tensor_parallel/cross_entropy.py", line 40, in calculate_logits_max',
    "[rank13]:     vocab_parallel_logits = vocab_parallel_logits.float()",
    "[rank13]: torch.OutOfMemoryError: " + modern(
        7.83 * GIB, 79.11 * GIB, 4.43 * GIB, 70.83 * GIB, 1.12 * GIB, process=74.67 * GIB, device=5),
    "W1120 10:12:44.120000 1234 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 1301 closing signal SIGTERM",
    "[rank15]: torch.OutOfMemoryError: " + modern(
        7.83 * GIB, 79.11 * GIB, 4.40 * GIB, 70.83 * GIB, 1.12 * GIB, process=74.70 * GIB, device=7),
])
IN_FLIGHT = "2: torch.OutOfMemoryError: " + modern(
    448 * MIB, 79.11 * GIB, 101.19 * MIB, 77.02 * GIB, 210.5 * MIB, process=78.99 * GIB, device=2
)
FRAGMENTS = "[rank3]: torch.OutOfMemoryError: " + modern(
    896 * MIB, 79.11 * GIB, 512.06 * MIB, 54.76 * GIB, 18.90 * GIB, process=78.60 * GIB, device=3
)
"""54.76 GiB: the measured peak of the run that passed with expandable segments (docs/sources.md#minimal-change-repair)."""

GRPO = """runtime_args:
  train_backend: megatron
  exp_name: grpo
  # config for training
  train_micro_batch_size: 8
  train_global_batch_size: 512
models:
  policy_trainer:
    use_expandable_segments: True
    bf16: True
    max_prompt_tokens_length: 1024
    max_response_tokens_length: 2048
    num_gpu: 16
    tensor_model_parallel_size: 4
    pipeline_model_parallel_size: 1
    context_parallel_size: 1
    sequence_parallel: True
    use_distributed_optimizer: True
    packing: true
    max_token_in_packing: {limit}   # few, large micro-batches
  ref_policy:
    max_token_in_packing: ${{models.policy_trainer.max_token_in_packing}}
"""
CHATLEARN = ["--from", "chatlearn", "--model", "qwen3-8b", "--device", "h100-sxm"]
BRIDGE = [
    "llama3-70b", "--device", "h100-sxm", "--devices", "32", "--precision", "fp8-cs", "--global-batch", "32", "--sequence", "4096",
    "--framework", "bridge", "--layout", "tp4 pp4 vp5 mb1 sp zero1",
]

#!/bin/bash
# A Megatron-LM launch script whose last stage runs out of memory in its logits. Ask for the smallest change:
#   meshwright fix examples/out_of_memory.sh --from megatron --model llama3-8b --device h100-sxm --oom examples/out_of_memory.log
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL_ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --normalization RMSNorm
  --position-embedding-type rope --untie-embeddings-and-output-weights
  --seq-length 8192 --max-position-embeddings 8192
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 4
  --decoder-first-pipeline-num-layers 4   # the first stage holds most micro-batches
  --decoder-last-pipeline-num-layers 12
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
TRAIN_ARGS=(
  --bf16 --micro-batch-size 2 --global-batch-size 128
  --lr 1.5e-4 --train-iters 10000 --log-interval 10
)

torchrun --nnodes 2 --nproc_per_node 8 --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" \
  pretrain_gpt.py "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAIN_ARGS[@]}" --data-path "$DATA_PATH"

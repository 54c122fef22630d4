#!/bin/bash
# A Megatron-LM launch script with mistakes that are met in practice. Ask what is wrong with it:
#   meshwright check examples/pretrain_70b.sh --from megatron --model llama3-70b --device h100-sxm --nodes 16
TP=${TP:-8}
PP=4

MODEL_ARGS=(
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64
  --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --normalization RMSNorm
  --position-embedding-type rope --untie-embeddings-and-output-weights
  --seq-length 8192 --max-position-embeddings 8192
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size $PP
  --sequence-parallel
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
TRAIN_ARGS=(
  --bf16 --micro-batch-size 1 --global-batch-size 512
  --gradient-accumulation-steps 32   # of another framework
  --use-flash-attn
  --recompute-granularity selective --recompute-method uniform
  --lr 1.5e-4 --train-iters 10000 --log-interval 10
)

torchrun --nnodes 16 --nproc_per_node 8 --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" \
  pretrain_gpt.py "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAIN_ARGS[@]}" --data-path "$DATA_PATH"

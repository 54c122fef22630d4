# ruff: noqa: E501
"""A few lines of each format of logs, written for the tests in the words that its program prints."""

from __future__ import annotations

MEGATRON = """\
using world size: 16, data-parallel-size: 1, tensor-model-parallel size: 4, pipeline-model-parallel size: 4
------------------------ arguments ------------------------
  global_batch_size ............................... 64
  num_layers ...................................... 40
  seq_length ...................................... 2048
  tensor_model_parallel_size ...................... 4
-------------------- end of arguments ---------------------
time (ms) | model-and-optimizer-setup: 336.26 | train/valid/test-data-iterators-setup: 662.92
 [2026-01-16 07:32:24] iteration       10/     100 | consumed samples:          640 | elapsed time per iteration (ms): 15800.0 | throughput per GPU (TFLOP/s/GPU): 490.0 | global batch size:    64 | lm loss: 1.344240E+01 | number of skipped iterations:   2 |
[Rank 7] (after 10 iterations) memory (MB) | allocated: 21633.0 | max allocated: 24432.0 | reserved: 29316.0 | max reserved: 29316.0[Rank 6] (after 10 iterations) memory (MB) | allocated: 21633.0 | max allocated: 24432.0 | reserved: 29312.0 | max reserved: 29312.0
(min, max) time across ranks (ms):
    forward-backward ...............................: (12000.00, 12500.00)
    optimizer ......................................: (3000.00, 3100.00)
 [2026-01-16 07:35:02] iteration       20/     100 | consumed samples:         1280 |
elapsed time per iteration (ms): 15600.0 | throughput per GPU (TFLOP/s/GPU): 495.0 | global batch size:    64 |
lm loss: 9.1E+00 | number of skipped iterations:   0 |
successfully saved checkpoint from iteration      20 to /c [ t 1/1, p 1/1 ] (min, max) time across ranks (ms): save-checkpoint ................: (24895.07, 24895.13)
"""
MEGATRON_2021 = """\
 iteration        1/    1000 | consumed samples:         1024 | elapsed time per iteration (ms): 2000.0 | global batch size:  1024 | lm-loss: 1.2E+01 |
time (ms) | forward-compute: 600.00 | forward-recv: 100.00 | backward-compute: 900.00 | optimizer: 200.00 | batch-generator: 10.00
 iteration        2/    1000 | consumed samples:         2048 | elapsed time per iteration (ms): 1900.0 | global batch size:  1024 | lm-loss: 1.1E+01 |
time (ms)
"""
TORCHTITAN = """\
[rank0]:[titan] 2026-02-24 19:46:10,100 - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1
[rank0]:[titan] 2026-02-24 19:46:10,200 - root - INFO - Training starts at step 1, with local batch size 2, global batch size 16, sequence length 8192, total steps 100 (warmup 2)
[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.62585  \x1b[0mgrad_norm: 26.6  memory: 66.91GiB(37.51%)  tps: 8,192  tflops: 314.71  mfu: 13.99%
[rank1]:[titan] 2026-02-24 19:46:17,508 - root - INFO - step: 10  loss:  7.62585  grad_norm: 26.6  memory: 67.00GiB(37.56%)  tps: 8,191  tflops: 314.70  mfu: 13.99%
[rank0]:[titan] 2026-02-24 19:46:19,145 - root - INFO - step: 20  loss:  7.07623  grad_norm: 46.5  memory: 66.91GiB(37.51%)  tps: 4,096  tflops: 157.3  mfu: N/A
[rank0]:[titan] 2026-02-24 19:46:19,146 - root - WARNING - 37 CUDA memory allocation retries.
"""
NANOTRON = """\
10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.38 | model_tflops_per_gpu: 38.3
10/17/2025 16:32:07 [INFO|DP=0|PP=0|TP=0]: iteration: 327282 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.35 | model_tflops_per_gpu: 38.3
"""
NANOTRON_NEWER = """\
10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0|node3]: iteration: 2 / 100 | consumed_tokens: 2.1M | time_per_iteration_ms: 1.04K | tokens_per_sec: 1.01M | tokens_per_sec_per_gpu: 126K | global_batch_size: 1.05M | lm_loss: 9.3 | model_tflops_per_gpu: 400 | eta: 1 day, 0:00:01
"""
DEEPSPEED = """\
[2026-10-08 20:03:15,649] [INFO] [config.py:752:print]   train_batch_size ............. 64
[2026-10-08 20:03:15,649] [INFO] [logging.py:68:log_dist] [Rank 0] rank=0 time (ms) | fwd_microstep: 435.69 | bwd_microstep: 744.13 | bwd_inner_microstep: 513.94 | bwd_allreduce_microstep: 230.14 | step_microstep: 660.00
[2026-10-08 20:03:15,649] [INFO] [logging.py:68:log_dist] [Rank 0] rank=0 time (ms) | fwd: 435.67 | bwd: 744.11 | bwd_inner: 513.92 | bwd_allreduce: 230.11 | step: 660.00
 51%|#####     | 507/1000 [15:32<16:42,  2.03s/it][2026-10-08 20:03:17,393] [INFO] [logging.py:68:log_dist] [Rank 0] rank=0 time (ms) | fwd: 316.00 | bwd: 747.31 | bwd_inner: 514.96 | bwd_allreduce: 232.28 | step: 1.01
[2026-10-08 20:03:18,393] [INFO] [timer.py:215:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=32.0, CurrSamplesPerSec=32.0, MemAllocated=1.0GB, MaxMemAllocated=2.0GB
"""
COMMS = """\
[2026-10-08 20:03:18,393] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: reduce_scatter_tensor | time (ms): 9.46 | msg size: 678.86 MB | algbw (Gbps): 1204.52 | busbw (Gbps): 1129.23
Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)
broadcast
                    2.0 KB              146                 11.12               0.08                0.43                0.41
"""
TRAINER = """\
[INFO|trainer.py:1143] 2021-05-25 06:38:26,360 >> ***** Running training *****
[INFO|trainer.py:1146] 2021-05-25 06:38:26,360 >>   Instantaneous batch size per device = 4
[INFO|trainer.py:1147] 2021-05-25 06:38:26,360 >>   Total train batch size (w. parallel, distributed & accumulation) = 64
[INFO|trainer.py:1148] 2021-05-25 06:38:26,360 >>   Gradient Accumulation steps = 2
[INFO|trainer.py:1149] 2021-05-25 06:38:26,360 >>   Total optimization steps = 16
\r  0%|          | 0/16 [00:00<?, ?it/s]\r  6%|6         | 1/16 [00:58<14:41, 58.76s/it]\r 12%|#2        | 2/16 [02:00<13:54, 59.61s/it]
{'loss': 2.31, 'grad_norm': 1.5, 'learning_rate': 4.5e-05, 'epoch': 0.12}
{'train_runtime': 919.097, 'train_samples_per_second': 1.088, 'train_steps_per_second': 0.017, 'epoch': 1.0}
{'train_runtime': 919.094, 'train_samples_per_second': 1.088, 'train_steps_per_second': 0.017, 'epoch': 1.0}
"""
NANOGPT = """\
tokens per iteration will be: 491,520
number of parameters: 123.59M
iter 1631: loss 4.0863, time 561.94ms, mfu 38.52%
iter 1632: loss 3.7441, time 563.15ms, mfu -100.00%
"""
MAXTEXT = """\
completed step: 8, seconds: 5.600, TFLOP/s/device: 136.000, Tokens/s/device: 8777.143, total_weights: 196608, loss: 10.4
completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, total_weights: 196608, loss: 10.374
"""
MINDSPORE = """\
2025-04-07 15:34:27,308 - [mindformers/core/callback/callback.py:529] - INFO - { Epoch:[  1/  2], step:[    1/   19], loss: 10.649, per_step_time: 103328ms, lr: 0.0, overflow cond: False, loss_scale: 1.0, global_norm: [1 31049], train_throughput_per_npu: 2.896T
2025-04-07 15:34:29,173 - [mindformers/core/callback/callback.py:529] - INFO - { Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms, lr: 1e-05, overflow cond: True, loss_scale: 1.0, global_norm [1 508834], train_throughput_per_npu: 170.738T
"""
CHATLEARN = """\
2026-01-01 10:00:00 INFO episode iteration 3 time summary.
time (sec) | e2e_cost: 123.45 | policy_trainer_train_step: 30.10(avg: 10.03) | policy_forward_step: 61.00
"""
CHATLEARN_BY_MODEL = """\
2026-01-01 10:00:00 INFO >>>>>>>>>>> episode iteration 3 time summary for each model as follows:
2026-01-01 10:00:00 INFO >>>>>>>>>>> [policy] time (sec) | e2e_cost: 61.00 | policy_forward_step: 60.10(avg: 60.10)
2026-01-01 10:00:00 INFO >>>>>>>>>>> [reference] time (sec) | e2e_cost: 9.00 | reference_forward_step: 8.50(avg: 8.50)
2026-01-01 10:00:00 INFO >>>>>>>>>>> [reward] time (sec) | e2e_cost: 2.00
2026-01-01 10:00:00 INFO >>>>>>>>>>> [policy_trainer] time (sec) | e2e_cost: 40.20 | policy_trainer_forward_step: 8.00(avg: 8.00) | policy_trainer_train_step: 30.10(avg: 10.03)
2026-01-01 10:00:00 INFO >>>>>>>>>>> grpo episode summary, episode iteration 3 time (sec) | episode: 123.45(avg: 123.45) | sync_parameters: 6.00(avg: 6.00)
"""
VERL = """\
(TaskRunner pid=7) {'actor_rollout_ref': {'actor': {'ppo_epochs': 1,
(TaskRunner pid=7)                                  'ppo_mini_batch_size': 256,
(TaskRunner pid=7)                       'rollout': {'free_cache_engine': True, 'gpu_memory_utilization': 0.6}},
(TaskRunner pid=7)  'critic': {'ppo_mini_batch_size': 64},
(TaskRunner pid=7)  'data': {'train_batch_size': 1024}}
(TaskRunner pid=7) step:0 - val-core/openai/gsm8k/reward/mean@1:0.565
(TaskRunner pid=7) step:1 - global_seqlen/mean:437760.000 - actor/pg_loss:-0.001 - perf/mfu/actor:1.018 - perf/max_memory_reserved_gb:61.5 - perf/cpu_memory_used_gb:360.0 - response_length/mean:325.0 - response_length/max:1024.000 - response_length/min:9.000 - prompt_length/mean:102.5 - timing_s/gen:74.020 - timing_s/old_log_prob:3.566 - timing_s/ref:3.420 - timing_s/adv:1.167 - timing_s/update_actor:14.302 - timing_s/step:96.551 - timing_s/agent_loop/slowest/prompt_length:99.0 - timing_s/testing:12.5 - timing_per_token_ms/adv:0.001 - perf/total_num_tokens:3502080.000 - perf/time_per_step:96.551 - perf/throughput:4533.982
(TaskRunner pid=7) step:2 - actor/pg_loss:nan - perf/mfu/actor:np.float64(0.318) - perf/max_memory_reserved_gb:np.float32(62.5) - timing_s/gen:70.12345678901234 - timing_s/old_log_prob:nan - timing_s/update_actor:14.2 - timing_s/step:np.float64(90.5) - perf/total_num_tokens:3502080
"""
VERL_OLDER = """\
(main_task pid=9) step:12 - actor/pg_loss:0.002 - response_length/mean:301.2 - timing/gen:12.597 - timing/ref:2.105 - timing/values:2.2 - timing/adv:0.1 - timing/update_critic:7.5 - timing/update_actor:8.001 - timing/testing:5.0 - timing/step:33.6
"""
NEMO_RL = """\
GRPOConfig(num_prompts_per_step=32, num_generations_per_prompt=16), 'train_global_batch_size': 512}
========================= Step 1/1000 =========================
▶ Preparing batch...

📊 Training Results:
  • Loss: 0.0123
  • Generation KL Error: 0.0012
  • Avg Reward: 0.5500
  • Mean Generation Length: 812.2500

⏱️  Timing:
  • Total step time: 68.58s
  • policy_training: 28.30s (41.3%)
  • generation: 20.00s (29.2%)
  • policy_and_reference_logprobs: 12.00s (17.5%)
  • prepare_for_generation/total: 5.00s (7.3%)
  • prepare_for_generation/transfer_and_update_weights: 3.00s (4.4%)
  • training_prep: 1.20s (1.7%)
  • data_processing: 0.50s (0.7%)
  • policy_training/submit_training_futures: 0.10s (0.1%)

🔍 Performance Metrics:
  • Throughputs (per GPU):
    - E2E (Samples/sec/gpu): 0.93
    - E2E (Tokens/sec/gpu): 1000.00
  • Throughputs (per Group):
    - E2E (Samples/sec): 7.47
    - E2E (Tokens/sec): 8000.00
(VllmGenerationWorker pid=3) INFO generation: nothing of note
========================= Step 1/1000 =========================
⏱️  Timing:
  • Total step time: 50.00s
  • exposed_generation: 12.00s (24.0%)
  • policy_training: 30.00s (60.0%)
  • weight_sync: 2.00s (4.0%)
"""
SLIME = """\
(RolloutManager pid=1) [2026-04-15 07:57:53] rollout.py:1193 - perf 0: {'rollout/response_len/mean': 2773.71484375, 'rollout/response_len/median': 2837.5, 'rollout/response_len/max': 4096, 'rollout/truncated_ratio': 0.46, 'perf/rollout_time': 71.17, 'perf/tokens_per_gpu_per_sec': 239.1}
(MegatronTrainRayActor pid=2) [2026-04-15 07:58:00] model.py:918 - step 0: {'train/loss': 0.01, 'train/pg_loss': 0.01, 'train/grad_norm': 0.2, 'train/global_batch_size': 128, 'train/step': 0}
(MegatronTrainRayActor pid=2) [2026-04-15 07:58:10] model.py:918 - step 1: {'train/loss': 0.02, 'train/grad_norm': 0.2, 'train/global_batch_size': 128, 'train/step': 1}
(MegatronTrainRayActor pid=2) [2026-04-15 07:58:11] train_metric_utils.py:44 - perf 0: {'perf/sleep_time': 4.03, 'perf/update_weights_time': 2.5, 'perf/wake_up_time': 1.94, 'perf/data_preprocess_time': 0.002, 'perf/train_wait_time': 84.33, 'perf/ref_log_probs_time': 6.4, 'perf/log_probs_time': 6.1, 'perf/actor_train_time': 20.02, 'perf/train_time': 33.84, 'perf/log_probs_tflops': 111.6, 'perf/actor_train_tflops': 103.7, 'perf/actor_train_tok_per_s': 35512.1, 'perf/step_time': 118.17, 'perf/wait_time_ratio': 0.71}
(RolloutManager pid=1) [2026-04-15 07:59:53] rollout.py:1193 - perf 1: {'rollout/response_len/mean': 2773.7, 'rollout/response_len/max': 4096, 'perf/rollout_time': 70.0}
"""
WATCHDOG = """\
[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.
[rank0]:[E321 02:07:08.465150152 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579.
[rank3]:[E709 17:05:38.482119928 ProcessGroupNCCL.cpp:1746] [PG 1 Rank 3] Received a dump signal due to a collective timeout from rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 1579, last completed NCCL work: 1579.This is most likely
"""
REFERENCE = """\
{"label": "pp2 mb1", "model": "small", "device": "x86_64", "torch": "2.13.0", "world": 2, "tokens": 256, "steps_s": [
  0.25,
  0.125
 ], "losses": [6.3, 6.2, 6.1], "flops_per_step": 1000.0, "flops_convention": "causal", "peak_flops_per_s": null,
 "ranks": [{"rank": 0, "memory_bytes": {"parameters": 10, "gradients": 10}, "memory_peak_bytes": null, "memory_reserved_bytes": null, "communication_exposed_s": 0.01}]}
"""
REFERENCE_PRINTED = """\
small: tp1 pp2 dp1 mb1 zero0
2 ranks on x86_64, torch 2.13.0+cpu

  step, median              137 ms
  step, 3 steps   109 ms to 148 ms
  tokens/s                   1,863
  loss            6.2378 to 6.2560
"""
REHEARSAL = """\
{"machine": {}, "rehearsals": [{"model": "small", "global_batch_sequences": 8, "sequence_tokens": 64, "ranks": 2, "entries": [
 {"label": "pp2 mb1", "predicted_s": 0.2, "measured_s": 0.21, "runs_s": [0.2, 0.21, 0.22], "cause": ""},
 {"label": "tp2 mb1", "predicted_s": 0.3, "measured_s": null, "runs_s": [], "cause": "CUDA out of memory. Tried to allocate 2.00 GiB."}]}]}
"""
PLAIN = """\
loading data
RuntimeWarning: nothing of note
Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: hidden size is no multiple of heads
"""
OUT_OF_MEMORY = """\
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 5 has a total capacity of 23.43 GiB of which 210.06 MiB is free.
"""
STEP_RECORD = """\
{"format":"meshwright step record 1","rank":1,"world":2,"layout":"tp2 mb1","warmup_steps":1,"clock":{"offset_s":100.0},"sequence_tokens":32}
{"begun":0,"start_s":109.0}
{"group":"7","dimension":"tp","ranks":[0,1]}
{"step":0,"start_s":109.0,"duration_s":1.0,"parts":{"data":0.1},"host":{},"memory":{"peak_bytes":300,"live_bytes":200},"threads":1}
{"begun":1,"start_s":110.0}
{"called":"all-reduce","of":"7","sequence":1,"payload_bytes":4096,"start_s":110.4}
{"done":1,"of":"7","end_s":110.6,"blocked_s":0.15}
{"step":1,"start_s":110.0,"duration_s":1.0,"parts":{"forward":0.5},"host":{"gc":[1,0.1]},"memory":{"live_bytes":210},"tokens":128,"loss":5.5}
{"begun":2,"start_s":111.0}
{"called":"send","of":"7:1>0","sequence":1,"payload_bytes":4096,"start_s":111.1}
{"at_s":119.0}
"""

EXAMPLES = {
    "megatron_log": (MEGATRON, MEGATRON_2021), "torchtitan_log": (TORCHTITAN,), "nanotron_log": (NANOTRON, NANOTRON_NEWER),
    "deepspeed_log": (DEEPSPEED,), "deepspeed_comms": (COMMS,), "hf_trainer_log": (TRAINER,), "nanogpt_log": (NANOGPT,),
    "maxtext_log": (MAXTEXT,), "mindspore_log": (MINDSPORE,), "chatlearn_log": (CHATLEARN, CHATLEARN_BY_MODEL),
    "verl_log": (VERL, VERL_OLDER), "nemo_rl_log": (NEMO_RL,), "slime_log": (SLIME,),
    "watchdog_log": (WATCHDOG,),
    "reference_log": (REFERENCE, REFERENCE_PRINTED, REHEARSAL), "plain_log": (PLAIN,), "out_of_memory": (OUT_OF_MEMORY,),
    "meshwright_step": (STEP_RECORD,),
}
"""Format -> texts of it."""
BESIDE = {"watchdog_log": {"plain_log"}, "out_of_memory": {"plain_log"}, "reference_log": {"out_of_memory"}}
"""Formats that are told beside a text's own one, with reason."""

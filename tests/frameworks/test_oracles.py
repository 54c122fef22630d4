"""Each oracle is alive: it accepts a sound configuration and refuses unsound ones in the framework's own words."""

from __future__ import annotations

import json
import textwrap

import pytest
from oracles_run import in_order, needs

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


def toml(text, world=64, **checks):
    return {"files": {"run.toml": textwrap.dedent(text)}, "world": world, "checks": checks}


@needs("torchtitan-0.2.2")
def test_torchtitan_022():
    deep = "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = '{}'\n{}\n[training]\nlocal_batch_size = 8\n"
    plain, looped = deep.format("1F1B", ""), "pipeline_parallel_layers_per_stage = {}"
    verdicts = in_order("torchtitan-0.2.2", [
        (toml("[parallelism]\ntensor_parallel_degree = 8\n[training]\nlocal_batch_size = 2\nglobal_batch_size = 512"), ""),
        (toml("[parallelism]\ntensor_parallel = 8"),
         "Invalid field names in <class 'torchtitan.config.job_config.Parallelism'> data: {'tensor_parallel'}"),
        (toml("""
            [parallelism]
            data_parallel_replicate_degree = 2
            data_parallel_shard_degree = 3
            tensor_parallel_degree = 8
            pipeline_parallel_degree = 2
            """, world=100), "Invalid parallel dims: dp_replicate(2) * dp_shard(3) * cp(1) * tp(8) * pp(2) != WORLD_SIZE(100)"),
        (toml("[parallelism]\ntensor_parallel_degree = 8\n[training]\nlocal_batch_size = 2\nglobal_batch_size = 500"),
         "global batch size must be multiple of local batch size times data-parallel degree (500 % (2 * 8) != 0)"),
        (toml("[parallelism]\ntensor_parallel_degree = 4\nexpert_parallel_degree = 2\nexpert_tensor_parallel_degree = 2"),
         "Currently we only support ETP=TP or ETP=1"),
        (toml(plain, num_layers=32), ""),
        (toml(deep.format("Interleaved1F1B", looped.format(3)), num_layers=32), ""),
        (toml(deep.format("Interleaved1F1B", looped.format(5)), num_layers=32),
         "Number of virtual stages (7) must be divisible by pipeline parallel size (4)."),
        (toml(deep.format("1F1B", looped.format(3)), num_layers=32),
         "Single stage schedule requires exactly 1 stage per rank, but got 3"),
        (toml(deep.format("Interleaved1F1B", looped.format(9)), num_layers=32),
         "Multi-stage schedule requires at least 2 stages per rank, but got 1"),
        (toml(plain, num_layers=1), "Number of stages (4) cannot be greater than effective layers (3)"),
        (toml(plain + "[parallelism.x]", num_layers=1), "Invalid field names"),
        (toml(plain.replace("= 8", "= 2"), num_layers=32),
         "Number of microbatches (2) must be greater than or equal to the number of stages (4)."),
    ])
    assert verdicts[0]["config"]["config"]["parallelism"]["tensor_parallel_degree"] == 8
    assert [len(part) for part in verdicts[5]["config"]["module_fqns"]] == [9, 9, 8, 9]
    assert verdicts[3]["by"] == "repeated"


@needs("torchtitan-0.3.0")
def test_torchtitan_030():
    def flags(words, world=64):
        return {"argv": ["--module", "llama3", "--config", "llama3_8b", *words.split()], "world": world}

    deep = "--parallelism.pipeline-parallel-degree 4 --training.local-batch-size 8"
    verdicts = in_order("torchtitan-0.3.0", [
        (flags("--parallelism.tensor-parallel-degree 8 --training.local-batch-size 2 --training.global-batch-size 512"), ""),
        (flags("--parallelism.tensor-parallel 8"), "Unrecognized options"),
        (flags("--parallelism.tensor-parallel-degree 3"),
         "Invalid parallel dims: dp_replicate(1) * dp_shard(21) * cp(1) * tp(3) * pp(1) != WORLD_SIZE(64)"),
        (flags("--parallelism.tensor-parallel-degree 8 --training.local-batch-size 2 --training.global-batch-size 500"),
         "global batch size must be multiple of local batch size times data-parallel degree (500 % (2 * 8) != 0)"),
        (flags(deep), "CUDA graphs do not support pipeline parallelism yet."),
        (flags(f"{deep} --training.disable-cuda-graphs"), ""),
        (flags(f"{deep} --training.disable-cuda-graphs --parallelism.pipeline-parallel-layers-per-stage 5"),
         "Number of virtual stages (7) must be divisible by pipeline parallel size (4)."),
    ])
    assert verdicts[0]["config"]["parallelism"]["tensor_parallel_degree"] == 8
    assert [len(part) for part in verdicts[5]["config"]["module_fqns"]] == [9, 9, 8, 9]


@needs("deepspeed-0.19.8")
def test_deepspeed():
    def document(world=64, **more):
        return {
            "files": {"ds.json": json.dumps({"train_batch_size": 512, "train_micro_batch_size_per_gpu": 2} | more)},
            "world": world,
        }

    verdicts = in_order("deepspeed-0.19.8", [
        (document(zero_optimization={"stage": 3}, tensor_parallel={"autotp_size": 8}), ""),
        (document(32, gradient_accumulation_steps=4),
         "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size "
         "512 != 2 * 4 * 32"),
        ({"files": {"ds.json": "{}"}, "world": 8},
         "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
        (document(bf16={"enabled": True}, fp16={"enabled": True}), "bfloat16 and fp16 modes cannot be simultaneously enabled"),
        (document(zero_optimization={"stage": 2, "overlap_com": True}), "overlap_com Extra inputs are not permitted"),
        (document(zero_optimization={"stage": 4}), "stage Input should be 0, 1, 2, 3 or 3"),
        (document(zero_optimization={"stage": 3, "mics_shard_size": 8}), "MiCS ZeRO-3 sharding has been removed"),
    ])
    assert verdicts[0]["config"]["gradient_accumulation_steps"] == 32
    assert verdicts[0]["config"]["zero_optimization"]["stage"] == 3


@needs("mindformers-2.1.0")
def test_mindformers():
    def document(world=8, batch=16, layers=None, recompute=None, **parallelism):
        given = {
            "training": {"local_batch_size": 1, "global_batch_size": batch}, "parallelism": parallelism,
            "lr_scheduler": {"type": "ConstantWarmUpLR"}, "train_dataset": {"dataloader": {"type": "MindDataset"}},
            "model": {"model_type": "qwen3", "architectures": "Qwen3ForCausalLM"},
        }
        given |= {"recompute": recompute} if recompute else {}
        return {"files": {"run.yaml": json.dumps(given)}, "world": world, "checks": {"num_layers": layers}}

    ranges = {"pipeline_parallel": 4, "pipeline_parallel_interleave_num": 2}
    verdicts = in_order("mindformers-2.1.0", [
        (document(tensor_parallel=2, sequence_parallel=True), ""),
        (document(tensor_parallel=3, sequence_parallel=True),
         "Invalid parallel dims: dp_replicate(1) * dp_shard(2) * cp(1) * tp(3) * pp(1) != WORLD_SIZE(8)"),
        (document(expert_parallel=16),
         "Invalid expert_parallel: ep(16) must divide dp_shard(8) * cp(1) * tp(1) = 8, and thus cannot exceed 8."),
        (document(tensor_parallel=2, sequence_parallel=False),
         "PyNative tensor parallelism requires sequence_parallel=True when tensor_parallel > 1, but got tensor_parallel=2."),
        (document(16, batch=8), "global_batch_size(8) must be divisible by data_parallel(16) * local_batch_size(1)."),
        (document(64, 64, 61, pipeline_parallel=8), "Number of layers (61) is not divisible by total stages (8)."),
        (document(64, 64, 64, pipeline_parallel=8), ""),
        (document(64, 64, 16, pipeline_parallel_layers_per_stage=["0-3"] * 3, pipeline_parallel=4),
         "The length of 'pipeline_parallel_layers_per_stage' (3) must equal 'pipeline_parallel' (4)"),
        (document(64, 64, 16, pipeline_parallel_layers_per_stage=["0-3"] * 4, **ranges),
         "Each PP rank must have exactly 2 comma-separated chunk(s)."),
        (document(64, 64, 16, pipeline_parallel_layers_per_stage=["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"], **ranges), ""),
        (document(64, 64, 16, pipeline_parallel=4, pipeline_parallel_layers_per_stage=["0-1-2"] * 4), "Invalid layer range format"),
        (document(dense_fsdp_shard_size=4), ""),
        (document(dense_fsdp_shard_size=3), "evenly divide fsdp (dp_shard * cp = 8)"),
        (document(moe_token_dispatcher_type="alltoall_deredundancy"),
         "expert_parallel must be greater than or equal to npu_nums_per_device"),
        (document(recompute={"mode": "selective"}), "RecomputeConfig.mode must be 'None', 'full', or 'select', got selective"),
        (document(tensor_parallel_degree=2), "Unknown configuration keys for ParallelismConfig: ['tensor_parallel_degree']"),
    ])
    assert verdicts[6]["config"]["num_accumulation_steps"] == 8
    assert verdicts[9]["config"]["stages"][5] == [10, 11]


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in ("accelerate-1.14.0", "accelerate-1.15.0")])
def test_accelerate(name):
    def document(world=64, degrees=None, top=None, **fsdp):
        given = {
            "compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 8,
            "num_processes": world, "machine_rank": 0, "main_process_ip": "10.0.0.1", "main_process_port": 29500,
            "fsdp_config": {
                "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer", "fsdp_cpu_ram_efficient_loading": False,
            } | fsdp,
        } | (top or {})
        if degrees:
            given["parallelism_config"] = {f"parallelism_config_{name}_size": size for name, size in degrees.items()}
        return {"files": {"run.yaml": json.dumps(given)}, "world": world}

    verdicts = in_order(name, [
        (document(degrees={"dp_shard": 8, "tp": 8}), ""),
        (document(), ""),
        (document(degrees={"dp_shard": 8, "tp": 4}), "ParallelismConfig total_size (32) does not match num_processes (64)."),
        (document(degrees={"dp_shard": 8, "cp": 4, "sp": 2}),
         "Context Parallelism (CP) and Sequence Parallelism (SP) are mutually exclusive."),
        (document(degrees={"dp_replicate": 8, "tp": 8}), "cannot be used with pure data parallelism"),
        (document(fsdp_reshard_after_forward="FULL_SHARD"), "invalid truth value full_shard"),
        (document(fsdp_state_dict_type="LOCAL_STATE_DICT"), "FSDP2 does not support LOCAL_STATE_DICT."),
        (document(fsdp_auto_wrap_policy="LAYERS"), "Invalid auto wrap policy: LAYERS."),
        (document(top={"use_parallelism_config": True}), "had unknown keys (['use_parallelism_config'])"),
    ])
    assert verdicts[0]["config"]["parallelism"] == {"dp_replicate": 1, "dp_shard": 8, "tp": 8, "cp": 1, "sp": 1}
    assert verdicts[1]["config"]["fsdp"]["reshard_after_forward"] is True

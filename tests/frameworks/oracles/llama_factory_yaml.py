"""LLaMA-Factory as judge of its YAML, from a checkout (development only): DIRECTORY is not read, the second argument is the source.

Executed: ``get_train_args`` on the words of the launch, as ``llamafactory-cli train`` hands them on, with transformers' own
``TrainingArguments``, which fills in DeepSpeed's JSON. Stood in for: devices, processes, and packages that are only looked up. The
interpreter is that of ``MESHWRIGHT_LLAMA_FACTORY_PYTHON``, which has LLaMA-Factory's dependencies and DeepSpeed.
"""

from __future__ import annotations

import math
import os
import sys
import typing
from pathlib import Path

from serving import Case, Judge, insist, serve, taken


def ready(directory: str) -> Judge:
    sys.path.insert(0, str(Path(sys.argv[2], "src")))
    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29811", LLAMAFACTORY_VERBOSITY="ERROR",
        DISABLE_VERSION_CHECK="1", HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", TOKENIZERS_PARALLELISM="false",
    )
    import torch
    import transformers.training_args as arguments

    ranks = {"world": 1}
    arguments.is_torch_bf16_gpu_available = lambda: True
    kind, distributed = arguments.TrainingArguments, arguments.ParallelMode.DISTRIBUTED
    stood = {
        "parallel_mode": lambda _: distributed, "world_size": lambda _: ranks["world"], "n_gpu": lambda _: 1,
        "process_index": lambda _: 0, "local_process_index": lambda _: 0, "should_log": lambda _: False,
        "device": lambda _: torch.device("cpu"),
    }
    for name, value in stood.items():
        setattr(kind, name, property(value))
    import llamafactory.hparams.parser as parser

    schedule = taken(Path(sys.argv[2], "src/llamafactory/train/megatron_bridge/config_builder.py"), "_compute_train_schedule",
                     {"math": math})
    parser.check_version = lambda *_, **__: None
    parser.is_megatron_bridge_available = lambda: True
    parser.is_torch_bf16_gpu_available = lambda: True

    def judge(case: Case) -> typing.Any:
        ranks["world"] = case["world"]
        model, data, train, tune, _ = parser.get_train_args()
        if tune.use_megatron_bridge:
            bridge = tune.megatron_bridge_args
            micro, total, _ = schedule(train, bridge, 1000)
            inner = bridge.tensor_model_parallel_size * bridge.pipeline_model_parallel_size * bridge.context_parallel_size
            # megatron/core/num_microbatches_calculator.py, which counts replicas without ep
            insist(total % (micro * (case["world"] // inner)) == 0, f"global batch size ({total}) is not divisible by micro batch "
                   f"size ({micro}) times data parallel size ({case['world'] // inner})")
            return {"micro": micro, "global": total, "cutoff": data.cutoff_len, "kind": tune.finetuning_type,
                    "extra": bridge.load_extra_config()}
        found = getattr(train, "hf_deepspeed_config", None)
        if found is not None:  # transformers/integrations/deepspeed.py, trainer_config_finalize: after the model is there
            insist(not found.mismatches, "Please correct the following DeepSpeed config values that mismatch TrainingArguments "
                   "values: " + " ".join(found.mismatches))
        return {
            "micro": train.per_device_train_batch_size, "steps": train.gradient_accumulation_steps, "cutoff": data.cutoff_len,
            "packing": data.packing, "stage": tune.stage, "kind": tune.finetuning_type, "rank": tune.lora_rank,
            "recomputes": not model.disable_gradient_checkpointing, "attention": str(model.flash_attn), "bf16": train.bf16,
            "deepspeed": None if found is None else found.config,
        }

    return judge


if __name__ == "__main__":
    serve(ready)

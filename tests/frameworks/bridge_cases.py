"""What is written for Megatron-Bridge as a case of its own ``run_recipe`` (``oracles/bridge_run_recipe.py``)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megatron_cases import environment_of
from oracles_run import Case, Verdict, commit_of, runner, source

from meshwright.domain.model import Mlp

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks import File

CORE = "MESHWRIGHT_MEGATRON_BRIDGE_CORE"
WEIGHTS = tempfile.gettempdir()
"""What every blank without a default is filled in with: a folder that exists."""
KINDS = {
    "LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe",
    "DeepseekV2ForCausalLM": "deepseek_v2", "DeepseekV3ForCausalLM": "deepseek_v3", "GptOssForCausalLM": "gpt_oss",
    "Glm4MoeForCausalLM": "glm4_moe", "OlmoeForCausalLM": "olmoe",
}
"""Architecture -> ``model_type`` of the hub."""


def absent() -> str:
    """Why Megatron-Bridge cannot be asked, or the empty string."""
    if not source("megatron-bridge"):
        return "MESHWRIGHT_MEGATRON_BRIDGE_SOURCE names no checkout"
    return "" if os.environ.get(CORE) else f"{CORE} names no checkout"


def release() -> str:
    """The release of the checkout, as ``bridge@RELEASE`` spells it."""
    info = Path(source("megatron-bridge"), "src", "megatron", "bridge", "package_info.py").read_text(encoding="utf-8")
    minor = int(re.search(r"^MINOR = ([0-9]+)", info, re.MULTILINE)[1])
    return "0.3" if minor == 3 else "main"


def commits() -> str:
    """Bridge's version, and the commits of both checkouts where ``COMMIT`` beside them or git tells them."""
    told = [commit_of(folder) for folder in (source("megatron-bridge"), os.environ[CORE])]
    return f"Megatron-Bridge {told[0]}, Megatron-LM {told[1]}"


def case_of(files: Sequence[File], model: Model, world: int) -> Case:
    """The program that ``launch.sh`` starts, with its words; blanks without a value are paths."""
    words = started(files)
    own = words[0].endswith("train.py")
    return {"program": "train.py" if own else words[0], "argv": words[1:], "world": world, "checks": shapes(model),
            "files": {file.path: file.text for file in files if file.path.endswith(".py")},
            "env": environment_of(next(file.text for file in files if file.path == "launch.sh"))}


def started(files: Sequence[File]) -> list[str]:
    """The program and its words, as bash gives them to a torchrun that only tells them."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for file in files:
            (here / file.path).write_text(file.text, encoding="utf-8")
        shim = here / "bin" / "torchrun"
        shim.parent.mkdir()
        shim.write_text('#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift 2; done\nprintf "%s\\0" "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
        blanks = dict.fromkeys(re.findall(r"\{(\w+):\?", (here / "launch.sh").read_text(encoding="utf-8")), WEIGHTS)
        environment = os.environ | blanks | {"PATH": f"{shim.parent}:{os.environ['PATH']}", "NODE_RANK": "0", "MASTER_ADDR": "here"}
        done = subprocess.run(["bash", "launch.sh"], cwd=here, env=environment, capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


def shapes(model: Model) -> dict[str, object]:
    """The model as ``config.json`` of the hub, as far as Bridge reads it."""
    kind, experts = model.kinds[-1], model.experts
    attention, latent = kind.attention, kind.attention.latent
    dense = next((each.feed_forward.width for each in model.kinds if isinstance(each.feed_forward, Mlp)), None)
    first = sum(each.experts is None for each in (model.kinds[index] for index in model.pattern))
    values: dict[str, object] = {
        "model_type": KINDS.get(model.architecture, "llama"), "architectures": [model.architecture], "hidden_size": model.hidden,
        "num_hidden_layers": model.num_layers, "num_attention_heads": attention.num_heads, "vocab_size": model.vocabulary,
        "num_key_value_heads": attention.num_heads if latent else attention.num_key_value_heads, "head_dim": attention.head_dim,
        "intermediate_size": dense or (experts.expert_width if experts else 0), "tie_word_embeddings": model.tied_embeddings,
        "max_position_embeddings": model.max_sequence or 4096,
    }
    if latent:
        values |= {"q_lora_rank": latent.query_rank, "kv_lora_rank": latent.key_value_rank, "v_head_dim": latent.value_dim,
                   "qk_nope_head_dim": latent.nope_dim, "qk_rope_head_dim": latent.rope_dim,
                   "num_nextn_predict_layers": model.num_mtp_layers}
        del values["head_dim"]
    if experts:
        values |= {
            "num_experts": experts.num_experts, "n_routed_experts": experts.num_experts, "num_local_experts": experts.num_experts,
            "num_experts_per_tok": experts.experts_per_token, "moe_intermediate_size": experts.expert_width,
            "first_k_dense_replace": first, "n_shared_experts": experts.shared_width // experts.expert_width,
            "n_group": experts.num_groups, "topk_group": experts.groups_per_token, "norm_topk_prob": True,
            "routed_scaling_factor": experts.routed_scale, "scoring_func": "sigmoid", "aux_loss_alpha": 0.001,
        }
    return values


def differs(config: dict, layout: Layout, layers: int) -> str:
    """What Bridge would train otherwise than planned, or the empty string."""
    model = config["model"]
    wanted = {
        "tensor_model_parallel_size": layout.tensor_parallel, "pipeline_model_parallel_size": layout.pipeline_parallel,
        "context_parallel_size": layout.context_parallel, "expert_model_parallel_size": layout.expert_parallel,
        "sequence_parallel": layout.sequence_parallel, "num_layers": layers,
    }
    found = {key: model[key] for key in wanted}
    wanted |= {"data parallel": layout.data_parallel, "micro-batch": layout.microbatch_sequences}
    found |= {"data parallel": config["data_parallel_size"], "micro-batch": config["train"]["micro_batch_size"]}
    if layout.stage_layers is not None:
        wanted["layers"] = [list(each) for each in zip(*layout.stage_layers, strict=True)]
        found["layers"] = config["layers_of_stages"]
    return ", ".join(f"{key} is {found[key]}, not {wanted[key]}" for key in wanted if found[key] != wanted[key])


def ask(cases: Sequence[Case]) -> list[Verdict]:
    """Bridge's verdicts; ``MESHWRIGHT_MEGATRON_BRIDGE_PYTHON`` names a Python with omegaconf, hydra-core and transformers."""
    python = os.environ.get("MESHWRIGHT_MEGATRON_BRIDGE_PYTHON", sys.executable)
    script = str(Path(__file__).with_name("oracles") / "bridge_run_recipe.py")
    return runner(python, "-W", "ignore", script, "", source("megatron-bridge")).verdicts(cases)


def verdicts(many: Sequence[tuple]) -> list[Verdict]:
    """Of files with the plan that they were written for; what is taken but would train otherwise is no acceptance."""
    found = ask([case_of(files, case.model, layout.world) for files, case, layout in many])
    for verdict, (_, case, layout) in zip(found, many, strict=True):
        if verdict["accepted"] and (why := differs(verdict["config"], layout, case.model.num_layers)):
            verdict.update(accepted=False, by="repeated", why=f"trains something else: {why}")
    return found


def words_for(row: Any, script: str) -> list[str]:
    """Changes of a launch that may be mistakes: words behind its own; which of them Bridge refuses it says itself."""
    layout, nested = row.layout.split(), "model.transformer." in script
    section = "model.transformer" if nested else "model"
    fsdp = bool({"zero2", "zero3"} & set(layout))
    uneven, cp, tuned = "layers=" in row.layout, "cp" in layout[1], row.task != "pretrain"
    recipe = re.search(r"--(recipe|model) (\w+)", script)
    offered = {
        f"--{recipe[1]} {recipe[2].replace('b_', 'c_', 1)}x" if recipe else "": recipe,
        "peft.dim=8": tuned and recipe, "model.tensor_model_parallel_size=2": nested, "model.hidden_sise=4096": True,
        f"{section}.account_for_loss_in_pipeline_split=True": uneven, "train.micro_batch_size=2": tuned,
        f"{section}.calculate_per_token_loss=False": tuned and cp, "ddp.average_in_collective=True": tuned and cp,
        f"{section}.cuda_graph_impl=transformer_engine": "recompute=full" in row.layout,
        "checkpoint.pretrained_checkpoint=null": tuned, "model.seq_length=128": True, "dataset.seq_length=128": tuned,
        f"{section}.tensor_model_parallel_size=7": True, f"{section}.context_parallel_size=3": True,
        f"{section}.sequence_parallel=True": layout[0] == "tp1",
        "dist.use_torch_fsdp2=True": fsdp, "checkpoint.ckpt_format=torch_dist": fsdp,
        "optimizer.use_precision_aware_optimizer=True": "zero0" in layout,
        f"{section}.recompute_granularity=full": "recompute" not in row.layout,
        f"{section}.virtual_pipeline_model_parallel_size=3": uneven,
        f"{section}.expert_model_parallel_size=2": True, "ddp.use_megatron_fsdp=True": "zero1" in layout,
        f"{section}.num_layers_in_first_pipeline_stage=1": uneven, f"{section}.overlap_moe_expert_parallel_comm=True": True,
    }
    return [words for words, fits in offered.items() if fits]

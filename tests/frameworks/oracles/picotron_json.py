"""picotron as judge of its JSON, from a checkout (development only): the second argument.

Executed: the statements of ``train.py`` from reading the file to its two assertions about the world, and
``distribute_layers`` of the pipeline. ``checks``: ``num_layers``, ``num_attention_heads``, ``num_key_value_heads``,
``hidden_size`` and ``vocabulary`` of the model where the JSON does not override them.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import os
import sys
import types
import typing
from pathlib import Path

import torch
from serving import Case, Judge, insist, only_file, serve, taken


def ready(_: str) -> Judge:
    source = Path(sys.argv[2])
    beginning = compile(beginning_of(source / "train.py"), "train.py", "exec", dont_inherit=True)
    place: dict[str, typing.Any] = {}
    distribute = taken(source / "picotron" / "pipeline_parallel" / "pipeline_parallel.py", "distribute_layers", place)
    torch.cuda.is_available = torch.cuda.is_bf16_supported = lambda *_: True  # type: ignore[assignment]

    def judge(case: Case) -> typing.Any:
        os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"]), "HF_TOKEN": "none"})
        os.environ |= case.get("env", {})
        sys.argv = ["train.py", "--config", only_file(case, ".json")]
        names = {"argparse": argparse, "json": json, "os": os, "torch": torch, "print": lambda *_, **__: None}
        exec(beginning, {"__builtins__": builtins} | names)
        config = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
        degrees, facts = config["distributed"], case.get("checks", {}) | {k: v for k, v in config["model"].items() if v is not None}
        layers, tensor, stages = facts.get("num_hidden_layers", facts.get("num_layers")), degrees["tp_size"], degrees["pp_size"]
        # picotron/model.py, Attention.__init__
        for name in ("num_attention_heads", "num_key_value_heads"):
            insist(name not in facts or facts[name] % tensor == 0, f"{name} should be divisible by tp world size")
        # picotron/tensor_parallel/tensor_parallel.py
        hidden, vocabulary = facts.get("hidden_size", tensor), facts.get("vocabulary", tensor)
        insist(hidden % tensor == 0, "Hidden dimension must be divisible by the tensor parallel world size")
        insist(vocabulary % tensor == 0, f"{vocabulary} is not divisible by {tensor}")
        split = None
        if layers is not None and stages > 1:
            split = []
            for rank in range(stages):
                group = types.SimpleNamespace(pp_world_size=stages, pp_rank=rank)
                place["pgm"] = types.SimpleNamespace(process_group_manager=group)
                split.append(distribute(None, layers))
            # picotron/checkpoint.py, init_model_with_materialized_weights: first and last stage have other weights
            insist(all(split[1:-1]), "Some ranks has no layers. There are too many ranks and not enough layers to distribute.")
        # train.py, the training loop
        known = stages == 1 or degrees["pp_engine"] in {"1f1b", "afab"}
        insist(known, f"Invalid pipeline parallel engine: {degrees['pp_engine']}")
        return {"config": config, "layers": split}

    return judge


def beginning_of(source: Path) -> ast.Module:
    """``train.py`` under its ``__main__`` up to the assertion about the world."""
    main = next(node for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    last = max(index for index, node in enumerate(main.body) if isinstance(node, ast.Assert) and "world_size" in ast.unparse(node))
    return ast.Module(body=main.body[: last + 1], type_ignores=[])


if __name__ == "__main__":
    serve(ready)

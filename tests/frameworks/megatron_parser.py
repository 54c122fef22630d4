"""Runs in a process of its own: Megatron-LM's argument checks over command lines, from a source checkout.

``python megatron_parser.py SOURCE < cases.jsonl > verdicts.jsonl``; a case is ``{"argv", "world", "env", "grid"}``, a verdict
``{"accepted", "why"}``. Kernels, devices and Transformer Engine are stood in for; nothing here is Megatron-LM's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import typing
import warnings
from types import SimpleNamespace


def prepare(source: str) -> None:
    """Stand-ins for what a machine without GPU or Transformer Engine lacks."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, source)
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    import torch

    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(  # type: ignore[assignment]
        major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, name="H100"
    )
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)  # older versions log through it
    import megatron.core.utils as core_utils
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils
    from packaging.version import Version

    core_utils._te_version = Version("2.9.0")
    for name in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        setattr(rope_utils, name, lambda *_: None)
    for name in ("permute", "permute_with_probs", "sort_chunks_by_index", "sort_chunks_by_index_with_probs", "unpermute",
                 "topk_with_score_function", "compute_score_for_moe_aux_loss", "moe_aux_loss"):  # fmt: skip
        setattr(moe_utils, f"fused_{name}", lambda *_: None)


def judge(case: dict[str, typing.Any]) -> str:
    """The reason for refusing a command line, or the empty string."""
    from megatron.core import num_microbatches_calculator as calculator
    from megatron.training import arguments

    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"])})
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(case["env"])
    sys.argv = ["pretrain_gpt.py", *case["argv"]]
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            args = arguments.parse_args()
            arguments.validate_args(args, {})
            calculator.unset_num_microbatches_calculator()
            calculator.init_num_microbatches_calculator(
                args.rank, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size,
                args.data_parallel_size, False,
            )  # fmt: skip
            config = arguments.core_transformer_config_from_args(args)
    except SystemExit:
        return sink.getvalue().strip().splitlines()[-1]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for name, wanted in case.get("read", {}).items():
        got = getattr(config, name, getattr(args, name, None))
        if got != wanted:
            return f"read back: {name} is {got!r}, not {wanted!r}"
    return ""


if __name__ == "__main__":
    verdicts, sys.stdout = sys.stdout, sys.stderr  # Megatron-LM prints while it is imported
    prepare(sys.argv[1])
    for line in sys.stdin.read().splitlines():
        why = judge(json.loads(line))
        print(json.dumps({"accepted": not why, "why": why}), file=verdicts, flush=True)

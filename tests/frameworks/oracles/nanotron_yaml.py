"""nanotron as judge of its YAML, from a checkout (development only): DIRECTORY holds dacite, the second argument the source.

Executed: ``get_config_from_file`` (dacite, strict, with the checks of ``Config``) as ``run_train.py`` calls it, and
``ParallelContext`` as far as its grid. ``checks`` are not needed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import typing
from pathlib import Path

from serving import Case, Judge, insist, only_file, serve, stand_in


class _PastTheGridError(Exception):
    """Ends the making of a context before its groups of processes."""


def ready(directory: str) -> Judge:
    sys.path[:0] = [str(Path(sys.argv[2], "src")), directory]
    os.environ["RANK"] = "0"
    stand_in(
        "flash_attn", "datasets", "transformers", "triton", "grouped_gemm", "lighteval", "datatrove", "huggingface_hub", "s3fs"
    )
    import datasets.download.streaming_download_manager as downloads

    downloads.xPath = type("xPath", (type(Path()),), {})  # dacite turns text into paths of this class
    from nanotron.config import get_config_from_file
    from nanotron.parallel import context

    def stop(*_: object) -> None:
        raise _PastTheGridError

    context.dist.is_available = stop

    def judge(case: Case) -> typing.Any:
        config = get_config_from_file(only_file(case, ".yaml", ".yml"))
        degrees, tokens, model = config.parallelism, config.tokens, config.model.model_config
        os.environ["WORLD_SIZE"] = str(case["world"])
        with contextlib.suppress(_PastTheGridError):
            context.ParallelContext(
                tensor_parallel_size=degrees.tp, pipeline_parallel_size=degrees.pp, data_parallel_size=degrees.dp,
                context_parallel_size=degrees.context_parallel_size, expert_parallel_size=degrees.expert_parallel_size,
            )
        # nanotron/models/llama.py and qwen.py, the attention's __init__
        insist(
            model.num_key_value_heads % degrees.tp == 0,
            f"Number of key/value heads ({model.num_key_value_heads}) must be divisible by TP size ({degrees.tp}).",
        )
        # nanotron/models/qwen.py, forward with llama3 ring attention
        blocks = 2 * degrees.context_parallel_size
        insist(
            degrees.context_parallel_size == 1 or tokens.sequence_length % blocks == 0,
            f"Sequence length {tokens.sequence_length} must be divisible by {blocks} when using llama3 ring attention",
        )
        # nanotron/parallel/pipeline_parallel/engine.py, OneForwardOneBackwardPipelineEngine.train_batch_iter
        batches = tokens.batch_accumulation_per_replica
        insist(
            type(degrees.pp_engine).__name__ != "OneForwardOneBackwardPipelineEngine" or batches >= degrees.pp - 1,
            f"Number of microbatches ({batches}) must be at least PP_SIZE-1={degrees.pp - 1} when using the "
            f"OneForwardOneBackwardPipelineEngine",
        )
        return {"config": config, "global_batch_size": config.global_batch_size}

    return judge


if __name__ == "__main__":
    serve(ready)

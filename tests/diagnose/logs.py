"""Short logs in the form of Megatron-LM's, written for these tests."""

from __future__ import annotations

ARGUMENTS = {
    "num_layers": "8",
    "hidden_size": "1024",
    "num_attention_heads": "16",
    "ffn_hidden_size": "4096",
    "seq_length": "1024",
    "max_position_embeddings": "1024",
    "tensor_model_parallel_size": "2",
    "pipeline_model_parallel_size": "4",
    "micro_batch_size": "1",
    "global_batch_size": "4",
    "world_size": "8",
    "bf16": "True",
    "log_interval": "1",
    "padded_vocab_size": "50304",
    "sequence_parallel": "False",
    "use_distributed_optimizer": "False",
}
"""Two tensor-parallel ranks in each of four stages, four micro-batches."""
TIMERS = {
    "forward-compute": 100.0,
    "backward-compute": 200.0,
    "forward-recv": 90.0,
    "backward-embedding-all-reduce": 120.0,
    "optimizer": 40.0,
    "batch-generator": 10.0,
}


def megatron_log(steps=8, step_ms=560.0, timers=TIMERS, arguments=ARGUMENTS, first_ms=2000.0, extra=""):
    """A log of so many steps; the first warms up."""
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    lines += ["-------------------- end of arguments ---------------------"]
    times = step_ms if isinstance(step_ms, list) else [first_ms, *[step_ms] * (steps - 1)]
    for number, elapsed in enumerate(times, start=1):
        lines.append(
            f" iteration {number:8d}/ {len(times):7d} | consumed samples: {4 * number:12d} | "
            f"elapsed time per iteration (ms): {elapsed:.1f} | "
            f"learning rate: 1.0E-04 | global batch size: {arguments.get('global_batch_size', 4):>5} | lm loss: 1.0E+01 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if timers:
            lines.append("time (ms) | " + " | ".join(f"{name}: {value:.2f}" for name, value in timers.items()))
    return "\n".join([*lines, extra]) + "\n"

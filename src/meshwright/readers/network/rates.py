"""Rates of collectives: from one convention to another, and what two rates say of the number of ranks.

    bus = algorithm * f(n)    f = 2 (n - 1) / n   all-reduce
                                  (n - 1) / n     all-gather, reduce-scatter, all-to-all, gather, scatter
                                  1               broadcast, reduce, send-receive, hypercube

Source: NVIDIA/nccl-tests doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Iterable

HALVED = ("allgather", "reducescatter", "alltoall", "alltoallv", "gather", "scatter")
MAX_RANKS = 10**6


def plain_name(operation: str) -> str:
    """``all_reduce_perf``, ``AllReduce``, ``nccl:all_reduce`` -> ``allreduce``."""
    name = operation.lower().rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    return "".join(each for each in name.removesuffix("_perf").removeprefix("_").removesuffix("_base") if each.isalpha())


def bus_factor(operation: str, ranks: int) -> float:
    """Bus rate over algorithm rate."""
    if ranks < 2:
        return 1.0
    name = plain_name(operation)
    share = (ranks - 1) / ranks
    return 2 * share if name == "allreduce" else share if name in HALVED else 1.0


def ranks_of(rates: Iterable[tuple[float, float, float, float]], operation: str) -> tuple[int, int] | None:
    """Least and most ranks that pairs of rates allow; None where they say nothing.

    ``rates``: of each size the algorithm's rate, the bus rate, and half a unit of the last digit that each is printed with.
    """
    low, high = 0.0, 3.0
    for algorithm, bus, algorithm_half, bus_half in rates:
        if algorithm > algorithm_half and bus > bus_half:
            low = max(low, (bus - bus_half) / (algorithm + algorithm_half))
            high = min(high, (bus + bus_half) / (algorithm - algorithm_half))
    name = plain_name(operation)
    whole = 2.0 if name == "allreduce" else 1.0 if name in HALVED else 0.0
    if not whole or low > high or low >= whole or low <= 0:
        return None
    least = max(2, -int(-whole / (whole - low) // 1)) if low < whole else 2
    most = int(whole / (whole - high)) if high < whole else MAX_RANKS
    return (least, min(most, MAX_RANKS)) if least <= most else None

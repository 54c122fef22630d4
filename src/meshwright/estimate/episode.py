"""A step of reinforcement learning from its parts: generation on an engine, passes that score, training, and what moves between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.episode import Engine, EpisodeEstimate, Generation, Phase
from meshwright.domain.mesh import group
from meshwright.perf.collectives import all_gather_s
from meshwright.perf.decoding import ELEMENT_BYTES, cache_bytes, decode_s, inside, prefill_s, weight_tensors, weights_bytes
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.episode import Episode
    from meshwright.domain.estimate import Estimate, Stage
    from meshwright.domain.layout import Layout

SIMULATED = 1024
"""Samples of one copy that are followed; of more, so many that stand for all, or for a part that is repeated."""
AT_ONCE = 8
"""Of those that are followed at least so many run at once where several can: none stands for more than that share of them."""
NODES = (2, 4, 8)
"""Nodes that a copy may span."""
STRIDES = 64
"""The longest response is followed in at least so many strides, over which contexts count as their mean."""


def room_tokens(case: Case, engine: Engine, tokens: float) -> float:
    """Tokens of sequences of such a length that one copy holds beside its weights.

        (u M (1 - w) - W / t) / (C(s) / s)

    Symbols: u ``Engine.memory_ratio``; M memory of a device; w ``working_ratio``; W weights; t TP; C ``cache_bytes``; s ``tokens``.
    Units:   tokens; negative where the weights alone are too large.
    Source:  vLLM gpu_memory_utilization, SGLang mem_fraction_static: of the whole memory, weights first.
    """
    share = engine.memory_ratio * case.cluster.device.memory_bytes * (1.0 - engine.working_ratio)
    left = share - float(weights_bytes(case.model, engine.tensor_parallel))
    each = float(cache_bytes(case.model, tokens, engine.tensor_parallel)) / tokens
    return left / each if each else left


def sizes(case: Case) -> tuple[int, ...]:
    """Devices that may share a copy: those that divide a node, and a few whole nodes."""
    node, world = case.cluster.devices_per_node, case.cluster.num_devices
    within = [size for size in range(1, node + 1) if node % size == 0]
    return tuple(size for size in (*within, *(node * nodes for nodes in NODES)) if world % size == 0)


def engines(case: Case, engine: Engine, episode: Episode) -> tuple[Engine, ...]:
    """The engine with every number of devices to a copy where a sample fits; over the network only where none inside does."""
    able = [each for each in (replace(engine, tensor_parallel=size) for size in sizes(case)) if _room(case, each, episode)]
    near = [each for each in able if inside(case, each)]
    return tuple(near or able)


def generation(case: Case, episode: Episode, engine: Engine) -> Generation:
    """What one copy of the engine needs for its share of the samples; all copies have alike ones.

        T = (1 + (n / (k e) - 1)) B + T';   e = min(n / k, max(1, r / 8))

    Symbols: n samples; k of them followed, each for e; r sequences that fit at once; B the time to the tail, repeated until all are
             done; T' the tail.
    Units:   s, tokens.
    Holds:   lengths at even quantiles of their law; prompts are read once for all their responses.
    Source:  ``_followed``, ``perf.decoding``.
    """
    copies = case.cluster.num_devices // engine.tensor_parallel
    samples = -(-episode.samples // copies)
    own = min(samples, SIMULATED)
    lengths = np.array(episode.lengths(own), dtype=np.float64)[_mixed(own)]
    room = room_tokens(case, engine, float(lengths.mean()))
    fitting = min(float(engine.running), room / float(lengths.mean()))
    each = min(samples / own, max(1.0, fitting / AT_ONCE))
    again = samples / (own * each) - 1.0 if each < samples / own else 0.0
    moments = _followed(case, episode, engine, lengths, each=each, room=room)
    prefill = float(prefill_s(case, engine, episode.prompts * episode.prompt_tokens / copies))
    most = max(running for running, _ in moments)
    full = max(index for index, (running, _) in enumerate(moments) if running >= most / 2.0)
    return Generation(
        engine=engine, prefill_s=prefill,
        seconds=prefill + sum(spent for _, spent in moments) + again * sum(spent for _, spent in moments[: full + 1]),
        tail_s=sum(spent for _, spent in moments[full + 1 :]), most_running=round(most * each), samples=samples,
        weights_bytes=float(weights_bytes(case.model, engine.tensor_parallel)), room_tokens=room,
    )


def _followed(
    case: Case, episode: Episode, engine: Engine, lengths: NDArray[np.float64], *, each: float, room: float
) -> list[tuple[int, float]]:
    """Follow sequences, each of which stands for ``each``: as many run as fit, each until its end, the next in its place.

    A sequence is taken in when its whole length fits, so that none is put out again.

    Shapes:  lengths ``[sequence]``, in the order in which they wait; a list of (sequences that run, seconds of that stretch).
    Units:   tokens, s.
    Source:  continuous batching (Orca, vLLM, SGLang).
    """
    most = max(1, int(min(float(engine.running), len(lengths) * each) / each))
    longest_stride = max(1.0, episode.response.longest_tokens / STRIDES)
    left, length = np.zeros(0), np.zeros(0)
    waiting, moments = 0, []
    while waiting < len(lengths) or left.size:
        taken = np.cumsum(lengths[waiting : waiting + most - left.size]) * each + length.sum() * each <= room
        count = max(int(taken.sum()), int(not left.size))
        length = np.append(length, lengths[waiting : waiting + count])
        left = np.append(left, lengths[waiting : waiting + count] - episode.prompt_tokens)
        waiting += count
        stride = min(longest_stride, float(left.min()))
        context = float((length - left).mean()) + stride / 2.0
        moments.append((left.size, stride * float(decode_s(case, engine, running=left.size * each, context_tokens=context))))
        left = left - stride
        length, left = length[left > 0.0], left[left > 0.0]
    return moments


def _mixed(count: int) -> NDArray[np.int64]:
    """An order of so many numbers that mixes small and large ones, the same every time: steps of the golden section."""
    return np.argsort((np.arange(count) * GOLDEN) % 1.0, kind="stable")


GOLDEN = 0.6180339887498949


def passes_s(stages: tuple[Stage, ...], microbatches: int, chunks: int) -> float:
    """Seconds of a forward of so many micro-batches through a pipeline.

        (m + (P - 1) / V) F

    Symbols: m micro-batches; P stages of V chunks; F forward of the slowest stage.
    Units:   s.
    Holds:   stages alike; the same micro-batches as in training; gathers of fully sharded weights hide behind compute.
    Source:  a pipeline that is filled once.
    """
    slowest = max(stage.forward_s for stage in stages)
    return (microbatches + (len(stages) - 1) / chunks) * slowest


def episode_estimate(
    case: Case, trained: Estimate, episode: Episode, engine: Engine, *, choose: bool = True
) -> EpisodeEstimate | None:
    """A whole step, with the engine's fastest tensor parallelism where it may be chosen; None where no engine has room.

    What the trainer holds stays on the device where it fits beside the engine; else it goes to the host and back, which is counted.
    While weights are handed over the engine has its own and no keys and values.

    Units:   s, bytes.
    Holds:   trainer and engine share all devices and take turns; the engine holds nothing while the trainer works; the reference is
             on the host unless it scores, and its way is not counted. It grows with the longest response where the packs of the
             case stay as long; packs that grow with it are fewer, and training and scoring take less.
    Source:  ``generation``, ``passes_s``, ``handed_s``; verl checkpoint_engine/base.py (keys and values are released before weights
             are updated), slime ray/rollout.py (``onload_weights``, then ``onload_kv``).
    """
    able = engines(case, engine, episode) if choose else tuple(each for each in (engine,) if _room(case, each, episode))
    if not able:
        return None
    first, *others = sorted((generation(case, episode, each) for each in able), key=lambda each: each.seconds)
    layout, own = trained.layout, trained.stages[trained.peak_stage].memory
    held = own.parameters + own.gradients + own.optimizer
    memory_bytes = case.cluster.device.memory_bytes
    awake = first.engine.memory_ratio * memory_bytes + own.overhead
    waits = held + awake > memory_bytes
    stays = 0.0 if waits else held
    scored_s = passes_s(trained.stages, episode.updates * layout.num_microbatches, layout.virtual_stages)
    scoring = max(stays, own.parameters) + own.temporary + own.overhead
    handing = first.weights_bytes + max(stays, own.parameters) + own.overhead
    way_s = held / case.cluster.host_link_bytes_per_s if waits else 0.0
    steps = episode.updates * episode.epochs
    phases = (
        Phase(name="generation", seconds=first.seconds, memory_bytes=awake + stays),
        Phase(name="old log-probabilities", seconds=scored_s * episode.old, memory_bytes=scoring),
        Phase(name="reference", seconds=scored_s * episode.reference, memory_bytes=scoring),
        Phase(name="training", seconds=steps * trained.step_s, memory_bytes=trained.memory_reserved_bytes),
        Phase(name="weights to the engine", seconds=handed_s(case, layout, engine), memory_bytes=handing),
        Phase(name="off the device and back", seconds=2.0 * way_s, memory_bytes=0.0),
    )
    return EpisodeEstimate(
        episode=episode, generation=first, others=tuple(others), phases=tuple(each for each in phases if each.seconds), waits=waits,
        memory_bytes=memory_bytes,
    )


def handed_s(case: Case, layout: Layout, engine: Engine) -> float:
    """Seconds in which the trainer's weights are gathered for the engine, tensor by tensor.

    An all-gather of 2 bytes a parameter over the ranks that hold parts of one copy (TP, PP and EP, or all under full sharding), and
    the host's time for each tensor (``Engine.tensor_host_s``), experts one by one.

    Units:   s.
    Source:  verl and slime gather each tensor over the trainer's ranks and hand it over on the device.
    """
    parts = layout.tensor_parallel * layout.pipeline_parallel * layout.expert_parallel
    spread = group(float(layout.world if layout.parameter_shards > 1 else min(parts, layout.world)), 1.0, case.cluster)
    whole_bytes = ELEMENT_BYTES * total_parameters(case.model)
    gathered = float(all_gather_s(whole_bytes, spread, case.cluster, case.calibration.constants))
    return gathered + weight_tensors(case.model) * engine.tensor_host_s


def _room(case: Case, engine: Engine, episode: Episode) -> bool:
    longest = episode.prompt_tokens + episode.response.longest_tokens
    return room_tokens(case, engine, longest) >= longest

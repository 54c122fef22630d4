"""What a stage holds of each of its chunks under interleaved 1F1B, at the moments at which it may hold most."""

import numpy as np

from meshwright.perf.schedules.microbatch_group import microbatch_group
from meshwright.perf.schedules.values import Count, Ints, ints


def held_interleaved(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Activations of each chunk that stage i holds at once: moments of which one is the fullest, whatever the chunks weigh.

        h_c(j) = F_c(w + 1 + j) - F_(V-1-c)(j),   0 <= j < max(M V - w, 1);   w = min(2 (P - i - 1) + (V - 1) g, M V)

    Symbols: F_c(k) micro-batches of chunk c among the first k of a stage's forwards, and of chunk V - 1 - c among its backwards;
             j backwards done, w forwards that warm up, g the micro-batch group.
    Shapes:  arrays that broadcast to a shape -> ``[moment, chunk, *shape]``; 0 of chunks that a stage has not.
    Units:   counts.
    Holds:   0 <= i < P; exact: between two moments forwards and backwards are of the same two chunks, so that what is held grows or
             shrinks all along, and from round to round it repeats itself, but for a last group that is shorter.
    Source:  Megatron-LM, megatron/core/pipeline_parallel/schedules.py; checked against held_vectors().

    >>> held_interleaved(stage=0, num_stages=2, num_microbatches=4, num_chunks=2)[:2].tolist()
    [[3, 2], [4, 1]]
    """
    p, m, v = ints(num_stages), ints(num_microbatches), ints(num_chunks)
    group = microbatch_group(p, m)
    rounds, warm = (m - 1) // group, np.minimum(2 * (p - ints(stage) - 1) + (v - 1) * group, m * v)
    rest, tail, ahead = m - rounds * group, rounds * group * v, warm + 1
    shape = np.broadcast_shapes(warm.shape, group.shape, v.shape)
    most = int(v.max(initial=1))
    turns = np.arange(most + 1).reshape(-1, *(1,) * len(shape))
    moments = [turns[:-1] * group, -ahead % group + turns[:-1] * group]
    if (rest < group).any():
        near = np.maximum(tail - ahead, 0) // group * group + turns * group
        moments += [np.minimum(near, tail), tail + turns * rest, tail + turns * rest - ahead]
    last = np.maximum(m * v - warm - 1, 0)
    done = np.concatenate([np.broadcast_to(each, (len(each), *shape)) for each in (*moments, last[None])])
    done = np.clip(done, 0, last)[:, None]
    chunk = np.arange(most).reshape(-1, *(1,) * len(shape))

    def passed(number: Ints, chunk: Ints) -> Ints:
        """Micro-batches of a chunk, counted in the order of the forwards, among so many operations."""
        whole = np.minimum(number // (group * v), rounds)
        size = np.where(whole < rounds, group, rest)
        own = number - whole * group * v - chunk * size
        np.clip(own, 0, size, out=own)
        own += whole * group
        return np.asarray(own)

    held = passed(np.minimum(ahead + done, m * v), chunk)
    held -= passed(done, v - 1 - chunk)
    held *= chunk < v
    return held

"""DualPipeV: forwards of one chunk run together with backwards of the other."""

import numpy as np

from meshwright.perf.schedules.values import Count, Floats, Ints, Value, floats, ints


def bubble_dualpipev_s(
    *,
    forward_s: Value,
    backward_input_s: Value,
    backward_weight_s: Value,
    fill_s: Value,
    hop_s: Value,
    num_stages: Count,
    num_microbatches: Count,
    num_chunks: Count,
) -> Floats:
    """Idle time of the busiest stage in DualPipeV.

        bubble = max( 2 (P-1) f + h H1,  (P-2) f + (P-1) i + h H2 )
                 + (P-1) max(i - w + h, 0)        each scaled by u, hops apart

        H1 = 5 (P-1) - 2 + e,  H2 = 7 (P-1) - 2 + e,  e = 2 (k - ceil((k-1) / P)),  k = M - 2 P

    A pair F&B is taken as long as its parts (f + i + w) and atomic: it waits for both inputs and
    sends both outputs at its end. With f = i = w this is 2 (P-1) f, the published value; where the
    backward dominates it is (P-1) (f + 2 i - w) - f, the published value less one chunk forward;
    where w or f is large the published value is too small.

    Symbols: f, i, w forward, input and weight gradient of one chunk of the busiest stage, half of
             the inputs; u = fill / ((P-1) (F + I + W)), 1 for uniform stages; h hop_s.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> s.
    Holds:   uniform chunks, M >= 2 P: equal to the simulation at hop_s = 0 and up to 2 % of
             min(f, i, w), within two hops of it up to half of that, too small beyond. Unequal
             stages: an estimate that scales with the fill. num_chunks is 2. F + I + W > 0.
    Source:  DeepSeek-V3, arXiv 2412.19437, table 2: DualPipe (PP/2 - 1) (F&B + B - 3 W), with
             PP/2 -> P for the V shape; corrected here from simulate() of the released order.

    >>> float(bubble_dualpipev_s(forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0,
    ...     fill_s=9.0, hop_s=0.0, num_stages=4, num_microbatches=8, num_chunks=2))
    3.0
    """
    p, m = ints(num_stages), ints(num_microbatches)
    f, i, w = floats(forward_s), floats(backward_input_s), floats(backward_weight_s)
    h = np.where(p > 1, floats(hop_s), 0.0)
    share = floats(fill_s) / (np.maximum(p - 1, 1) * (f + i + w))
    half = 0.5 * share
    late = _late_hops(p, m)
    forwards = 2 * (p - 1) * f * half + h * (5 * (p - 1) - 2 + late)
    backwards = ((p - 2) * f + (p - 1) * i) * half + h * (7 * (p - 1) - 2 + late)
    exposed = (p - 1) * np.maximum((i - w) * half + h, 0.0)
    return np.asarray(np.maximum(forwards, backwards) + exposed)


def in_flight_dualpipev(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Most chunk activations that a stage holds at once, the same on every stage.

        n = 2 P + 1

    In stages' worth P + 1/2: balanced, where 1F1B goes from P on the first stage to 1 on the last.
    The parts that weight gradients need are never held by more than 2 P + 1 chunks either.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (activations of one chunk; a stage has 2).
    Holds:   M >= 2 P; exact.
    Source:  DeepSeek-V3, arXiv 2412.19437, table 2 (PP + 1 for DualPipe); checked against
             simulate().

    >>> int(in_flight_dualpipev(stage=0, num_stages=4, num_microbatches=8, num_chunks=2))
    9
    """
    return np.asarray(2 * ints(num_stages) + 1)


def held_dualpipev(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Activations of the first and of the second chunk that stage i holds at its fullest moment.

        h_0 = 2 P - i,   h_1 = i + 1

    Shapes:  arrays that broadcast to a shape -> ``[1, 2, *shape]``.
    Units:   counts.
    Holds:   M >= 2 P, whatever the chunks weigh: no moment holds more of either; exact, until the weight gradient too.
    Source:  derived here; checked against held_vectors().

    >>> held_dualpipev(stage=3, num_stages=4, num_microbatches=8, num_chunks=2).tolist()
    [[5, 4]]
    """
    i, p, *_ = np.broadcast_arrays(ints(stage), ints(num_stages), ints(num_microbatches), ints(num_chunks))
    return np.stack([2 * p - i, i + 1])[None]


def exposed_hops_dualpipev(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Point-to-point transfers on the critical path, the most over all shapes of f, i, w.

        H = 8 (P-1) - 2 + 2 (k - ceil((k-1) / P)),   k = M - 2 P;    0 when P = 1

    Pairs wait for both of their inputs, so hops stay exposed in the steady state, nearly 2 per
    microbatch. bubble_dualpipev_s picks the count that belongs to its critical path (5, 6, 7 or 8
    in place of the 8).

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts.
    Holds:   uniform chunks, M >= 2 P, hops short against chunk times.
    Source:  derived here; checked against simulate().

    >>> int(exposed_hops_dualpipev(num_stages=4, num_microbatches=8, num_chunks=2))
    22
    """
    p, m = ints(num_stages), ints(num_microbatches)
    return np.where(p > 1, 8 * (p - 1) - 2 + _late_hops(p, m), 0)


def _late_hops(num_stages: Ints, num_microbatches: Ints) -> Ints:
    extra = num_microbatches - 2 * num_stages
    return np.asarray(2 * (extra + (1 - extra) // num_stages))  # -ceil(x / P) = (-x) // P

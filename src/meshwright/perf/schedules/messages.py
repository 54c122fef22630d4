"""How many point-to-point messages a stage sends per microbatch."""

import numpy as np

from meshwright.perf.schedules.values import Count, Ints, ints


def messages_loop(*, stage: Count, num_stages: Count, num_chunks: Count) -> Ints:
    """Messages that stage i sends per microbatch when chunks go round in a loop.

        n = 2 V - [i = 0] - [i = P-1],    0 when P = 1

    One activation and one gradient per chunk; the loss and the input are not sent.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (messages of one microbatch's hidden states); received as many as sent.
    Holds:   0 <= i < P; exact.
    Source:  Narayanan et al. 2021, arXiv 2104.04473, section 2.2; counted over the orders.

    >>> int(messages_loop(stage=0, num_stages=4, num_chunks=2))
    3
    """
    i, p = ints(stage), ints(num_stages)
    edges = np.where(i == 0, 1, 0) + np.where(i == p - 1, 1, 0)
    return np.where(p > 1, 2 * ints(num_chunks) - edges, 0)


def messages_v(*, stage: Count, num_stages: Count, num_chunks: Count) -> Ints:
    """Messages that stage i sends per microbatch when two chunks form a V.

        n = 2 [i < P-1] + 2 [i > 0]

    The turning point stays inside the last stage.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (messages of one microbatch's hidden states); received as many as sent.
    Holds:   0 <= i < P; num_chunks is 2; exact.
    Source:  github.com/deepseek-ai/DualPipe, dualpipe/dualpipev.py; counted over the orders.

    >>> int(messages_v(stage=0, num_stages=4, num_chunks=2))
    2
    """
    i, p = ints(stage), ints(num_stages)
    return np.where(i < p - 1, 2, 0) + np.where(i > 0, 2, 0)

"""What a micro-batch of packed samples costs: linear in its tokens and in the sum of its squared lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Cost(Value, frozen=True, kw_only=True):
    """Seconds of a micro-batch forward and backward, or any other unit; the defaults count tokens.

        c + a sum(length) + b sum(length^2)

    Symbols: c ``microbatch_s``, a ``token_s``, b ``square_s``.
    Source:  attention inside a sample costs its squared length (``perf.attention``), all else its length.
    """

    token_s: float = 1.0
    square_s: float = 0.0
    microbatch_s: float = 0.0

    def of_samples(self, lengths: NDArray[np.int64]) -> NDArray[Any]:
        """The share of each sample, ``[samples]``."""
        tokens = lengths.astype(np.float64)
        return self.token_s * tokens + self.square_s * np.square(tokens)

    def of_microbatch(self, lengths: NDArray[np.int64]) -> float:
        """A micro-batch of these samples."""
        return self.microbatch_s + float(self.of_samples(lengths).sum())

    def crossover_tokens(self) -> float:
        """The length at which attention's squares cost as much as all else: infinite where they cost nothing."""
        return self.token_s / self.square_s if self.square_s > 0 else float("inf")


TOKENS = Cost()
"""Every token costs the same: where neither model nor device is known."""

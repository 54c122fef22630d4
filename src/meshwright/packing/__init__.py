"""Samples of unequal length in micro-batches: pure algorithms on arrays of lengths.

``pack`` keeps the limit of tokens and balances the ranks of data parallelism by cost; ``modes`` say what others do.
"""

from meshwright.packing.balance import pack
from meshwright.packing.bins import best_fit, levelled
from meshwright.packing.bounds import exact, lower_bound
from meshwright.packing.cost import TOKENS, Cost
from meshwright.packing.figures import Figures, figures
from meshwright.packing.lengths import Oversize, prepared

__all__ = ["TOKENS", "Cost", "Figures", "Oversize", "best_fit", "exact", "figures", "levelled", "lower_bound", "pack", "prepared"]

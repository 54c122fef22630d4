"""Pure, broadcastable formulas: scalars explain, columns search."""

"""Stage balance: which layers stand on which stage, and which of them are recomputed in which way."""

"""Stage balance: which layers stand on which stage, and which of them are recomputed in which way."""

from meshwright.search.balance.quick import quick_placements
from meshwright.search.balance.solve import balance
from meshwright.search.balance.sound import require_sound

__all__ = ["balance", "quick_placements", "require_sound"]

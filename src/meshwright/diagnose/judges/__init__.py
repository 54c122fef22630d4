"""Predicates that judge the rules of the guides, by subject; importing this package registers them all."""

from meshwright.diagnose.judges import axes, batch, memory, playbook, recompute, speed, stated

__all__ = ["axes", "batch", "memory", "playbook", "recompute", "speed", "stated"]

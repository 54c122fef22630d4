"""Predicates that judge the rules of the guides, by subject; importing this package registers them all."""

from meshwright.judging.judges import axes, batch, memory, metrics, playbook, recompute, sharding, speed, stated

__all__ = ["axes", "batch", "memory", "metrics", "playbook", "recompute", "sharding", "speed", "stated"]

"""Faults of known kinds put into the reference step, and whether ``diagnose`` names them: ``python -m benchmarks.faults``."""

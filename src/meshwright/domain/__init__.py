"""Frozen values: what is given, what is chosen, what comes out. No I/O."""

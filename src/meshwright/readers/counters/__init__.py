"""Samples of what devices counted."""

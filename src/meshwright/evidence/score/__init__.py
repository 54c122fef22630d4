"""Predictions beside measurements: held-out validation, metrics, cells, sets."""

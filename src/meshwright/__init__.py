"""Meshwright: the fastest training configuration for a large model on a given cluster."""

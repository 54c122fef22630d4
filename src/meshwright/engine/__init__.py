"""Real PyTorch: the reference step, micro-benchmarks, and the dry run on fake devices. The only floor that imports torch."""

"""Micro-benchmarks of a machine: what is measured, how it is timed and kept, and the cluster file that is fitted to it.

No benchmark is a layer or a training step; each runs one operation as the reference step runs it.
"""

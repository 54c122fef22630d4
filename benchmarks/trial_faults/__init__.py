"""Faults on purpose: what trials, executors, disks and Meshwright itself can come to, and what is left (docs/sweep-faults.md)."""

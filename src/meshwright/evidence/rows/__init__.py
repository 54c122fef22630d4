"""Rows of a CSV as runs: what was measured, by whom, and what a source means by its words."""

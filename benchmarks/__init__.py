"""Programs that measure Meshwright itself: against published runs, and against the clock."""

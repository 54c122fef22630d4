"""From a case and layouts to estimates: the one cost model, assembled."""

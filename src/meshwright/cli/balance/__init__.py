"""``meshwright balance``: files of layers, models with a layout, guides of dry runs, and measured stages."""

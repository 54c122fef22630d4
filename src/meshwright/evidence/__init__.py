"""Published and own measurements: their rows as cases, fitting a calibration to them, validation by held-out groups."""

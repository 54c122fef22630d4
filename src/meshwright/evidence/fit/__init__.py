"""From runs to a calibration: constants, intervals, and how likely a layout runs."""

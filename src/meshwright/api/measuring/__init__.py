"""What ``sweep`` and ``tune`` share: what is measured, how it is run, what it may cost, and where it is kept."""

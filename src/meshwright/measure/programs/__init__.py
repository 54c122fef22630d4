"""What a trial runs: a framework's own launch files, the reference step, or the user's own script with fields."""

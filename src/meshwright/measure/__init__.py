"""What is run for real: trials on executors, kept in a store, chosen by a list or by what is known; and the closed loop."""

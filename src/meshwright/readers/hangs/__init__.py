"""Dumps of collectives, and which rank and which collective a hang waits for."""

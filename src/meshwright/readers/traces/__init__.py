"""Traces of profilers: events in bounded memory, where a device's time went, and several ranks' files beside each other."""

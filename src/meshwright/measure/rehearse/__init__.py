"""The closed loop: layouts chosen, run by the reference step on this machine, and measured figures beside predicted ones."""

"""Plans out to files and back in through the doors of a user: ``python -m benchmarks.round_trips [--cases N] [--seed S]``.

    draw.py     a case, a framework's release and a legal layout of any kind
    trial.py    the plan saved, exported, then read by import, check and estimate; laws that hold between them
"""

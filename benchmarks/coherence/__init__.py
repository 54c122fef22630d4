"""Whether the verbs say one thing about one case: drawn cases, laws that hold for each, and a page that counts what broke.

    draw.py     a case as options of the command line
    trial.py    its plan, and whatever a law asks about it, through the Python API
    plans.py, explained.py, written.py, lacking.py    the laws, by the verb that would break them
    tally.py    counts, and docs/coherence.md
"""

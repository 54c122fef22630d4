"""Files of runs, spoiled in every way that files spoil, through diagnose and compare: ``python -m benchmarks.spoiled_runs``.

The files of ``MESHWRIGHT_SAMPLES`` (the test gives the texts that tests have of each format) are cut, mixed and written over.
What is answered must be sound whatever stands in them: an ``InputError``, or figures that can be, at bounded cost, in which
``--redact`` leaves no host, address, key or path. ``--cases N --seed S`` draws others, ``--only I --keep DIR`` one of them, and
keeps its files.
"""

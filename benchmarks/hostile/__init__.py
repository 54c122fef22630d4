"""Drawn hostile cases over every verb of the command line: ``python -m benchmarks.hostile [--cases N] [--seed S] [--write]``.

A case is a folder, a command line and how it is run; as text it is one shell line. ``atoms`` has hostile words and numbers,
``documents`` well-formed files to spoil, ``draw_*`` one generator a class of faults, ``sandbox`` runs a case in a forked child,
``judge`` says what must not have happened. Of the program it knows nothing but ``meshwright.cli.main`` and what ``--help`` prints.
"""

"""``python -m meshwright`` is the command line."""

from meshwright.cli import main

raise SystemExit(main())

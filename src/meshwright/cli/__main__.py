"""``python -m meshwright.cli`` is ``meshwright``."""

import sys

from meshwright.cli import main

sys.exit(main())

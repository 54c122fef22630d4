"""The commit that a campaign tries."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit_of(tree: Path = ROOT) -> str:
    """The short name of the commit checked out in a tree; ``unknown`` where git does not say."""
    said = subprocess.run(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"

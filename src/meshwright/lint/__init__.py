"""What an expert sees before the run starts: scripts, environments, configurations; nothing is run."""

from meshwright.lint.found import Edit, Found
from meshwright.lint.rule import Rule, rules
from meshwright.lint.run import Linted, Mended, Wanted, lint

__all__ = ["Edit", "Found", "Linted", "Mended", "Rule", "Wanted", "lint", "rules"]

"""Python as the linter sees it: parsed once, walked once, asked by every rule; nothing of it is run."""

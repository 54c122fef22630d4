"""The case of most command lines here, and how one varies it."""

from collections.abc import Sequence

CASE = ["llama3-8b", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "128", "--sequence", "8192"]


def instead(words: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Words of a command line with more of them: options with a value that both have are the latter's."""
    taken = {place + gap for place, word in enumerate(words) if word.startswith("--") and word in more for gap in (0, 1)}
    return (*(word for place, word in enumerate(words) if place not in taken), *more)

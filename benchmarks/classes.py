"""How many language models of transformers are read, each built on the meta device: ``python -m benchmarks.classes [kind ...]``."""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.catalog.hf_mapping import Found, classes, table, walk


def found_of(kind: str) -> Found | str:
    """What came of a model type, or why its class cannot be built."""
    try:
        return walk(kind)
    except Exception as error:  # whatever the class says of them
        return f"{type(error).__name__}: {error}"


def main() -> int:
    """Print what is not read to the last weight, and how many of each outcome there are; 1 where something is read wrongly."""
    logging.disable(logging.WARNING)
    listed = {**table()["unread"], **table()["unbuilt"]}
    counts: Counter[str] = Counter()
    for kind in sys.argv[1:] or classes():
        found = found_of(kind)
        outcome = found.outcome if isinstance(found, Found) else "not built"
        counts[outcome] += 1
        if outcome != "equal":
            said = found if isinstance(found, str) else f"class {found.built:,}, read {found.read}; {' '.join(found.words)}"
            print(f"{kind}: {outcome} ({listed.get(kind, 'not on the list')}): {said[:160]}")
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()))
    return 1 if counts["unequal"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())

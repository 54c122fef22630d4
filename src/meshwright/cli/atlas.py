"""``meshwright atlas``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.atlas import AtlasAnswer, AtlasRequest, atlas

if TYPE_CHECKING:
    from collections.abc import Iterator

EPILOG = """\
Example: meshwright atlas --models llama3-8b,llama3-70b --device h100-sxm --nodes 1..64 --global-batch 1024 \
--sequence 8192 --out atlas.html

Example: meshwright atlas --csv shipped --framework nanotron --global-batch 256 --difference (predicted beside measured)
"""
FIELDS = (*AtlasRequest.FIELDS, JSON)
REQUEST, ASK = AtlasRequest, atlas


def report(answer: AtlasAnswer, _options: object) -> Iterator[Any]:
    """The map, its cells, linearity, and what predicted and measured have apart."""
    from meshwright.report.atlas_told import told_of
    from meshwright.report.cost import saved_lines

    yield from told_of(answer.to_json())
    if answer.saved:
        yield from saved_lines(answer.saved)

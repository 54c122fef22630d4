"""Layer files and dry runs of SAPP's test cases, as facts (reference: pipeline-balance, section 4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEAD = {"name": "embedding", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 11000}
BODY = {
    "name": "layer", "type": "BODY", "time": 180, "nb_layer": 96, "memory_parameter": 1583, "memory_activation": 826,
    "memory_recompute": 32, "recompute_coef": 0.5,
}
TAIL = {"name": "head", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 2473}
KINDS = {"memory_select_rec": 614, "memory_select_comm": 426, "memory_both_comm_select": 310}
"""What T6 adds to the body: selective, communication and both."""

DRY_RUNS = """\
pipeline_config: {pipeline_num: 4, num_layer: 80, offset: [[0, 1, -1, 0], [0, -1, 1, 0]]}
time_config: {head: 30, body: 180, tail: 90}
recompute_config: {recompute: [[1, 2, 1, 1], [1, 3, 4, 1]], select_recompute: [false, false], select_comm_recompute: [false, false]}
memory_usage:
  head_memory: 66502
  tail_memory: 25599
  body_memories: {stage_id: [[1, 2], [1, 2]], memories: [[52536, 35595], [45439, 35700]]}
"""
"""T4: two rounds of four stages; a layer holds 400 MB of parameters, 743 of activations, 131 recomputed."""


LEAST_SQUARES = """\
pipeline_config:
  {pipeline_num: 16, num_layer: 96, offset: [0, 0, -4, -2, 2, -2, -2, 10, -2, -2, -2, 0, 2, 2, 0, 0]}
time_config: {head: 30, body: 180, tail: 90}
recompute_config:
  recompute: false
  select_recompute: [5, 5, 2, 1, 4, 3, 2, 14, 4, 4, 4, 6, 1, 5, 5, 6]
  select_comm_recompute: [0, 5, 0, 1, 1, 4, 2, 2, 1, 3, 2, 6, 4, 5, 5, 1]
memory_usage:
  head_memory: 96643
  tail_memory: 23531
  body_memories:
    stage_id: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    memories: [60854, 27620, 54533, 100631, 31713, 38874, 146986, 31713, 24553, 24553, 28484, 45016, 33763, 20463]
"""
"""T5: one round of sixteen stages, more peaks than memories."""


def ls1(folder: Path, *, body: dict[str, Any] | None = None, **top: Any) -> str:
    """The layer set LS1, with some keys of its body and of the file changed; its path."""
    document = {"name": "LS1", "layers_description": [HEAD, {**BODY, **(body or {})}, TAIL], **top}
    return written(folder / "ls1.json", json.dumps(document))


def written(path: Path, text: str) -> str:
    """A file with a text; its path."""
    path.write_text(text, encoding="utf-8")
    return str(path)

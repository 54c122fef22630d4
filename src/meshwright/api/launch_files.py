"""The files that a framework runs a plan with: what it writes, and a smaller run to correct the prediction by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.documents.source import File
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

PROBE = """
## Smaller run

`probe/` trains {layers} on one node, {devices}, with the same tensor and context parallelism, micro-batch and recomputation.
Read its peak of allocated memory, and correct the prediction of the whole plan with it:
`meshwright estimate --request plan.yaml --anchor-memory probe/plan.yaml=BYTES`.
"""


def launch_files(given: Setup, layout: Layout, estimate: Estimate) -> list[Any]:
    """The framework's files for a layout with the predicted figures quoted in them, and a probe where it writes none.

    Errors: ``NoAnswerError`` with every reason where the framework cannot express the plan.
    """
    from meshwright.errors import InputError, NoAnswerError
    from meshwright.frameworks import Options

    options = Options(estimate=estimate, label=estimate.label)
    if given.framework.writer is not None and (reasons := given.framework.check(given.case, layout)):
        raise NoAnswerError(reasons)
    files = list(given.framework.write(given.case, layout, options=options))
    try:
        probe = None if any(file.path.startswith("probe") for file in files) else _probe(given, layout)
    except InputError:
        probe = None
    words, small = probe or ("", [])
    return [*(replace(file, text=file.text + words) if file.path == "README.md" else file for file in files), *small]


def _probe(given: Setup, layout: Layout) -> tuple[str, list[File]] | None:
    """How a smaller run of one node is used, and its files below ``probe/``, with the plan that anchors the estimate."""
    from meshwright.api.saved import plan_file
    from meshwright.estimate import estimate as predict
    from meshwright.frameworks import File, Options
    from meshwright.frameworks.probe import smaller

    found = smaller(given.framework, given.case, layout)
    if found is None or layout.world == found[1].world:
        return None
    case, small = found
    estimate = predict(case, small)
    options = Options(estimate=estimate, label=estimate.label, train_iters=3, is_probe=True)
    written = given.framework.write(case, small, options=options)
    request = {
        **{key: value for key, value in given.request.items() if key not in _NOT_OF_A_PROBE},
        "device": case.cluster.device.name, "devices": case.cluster.num_devices, "layers": case.model.num_layers,
        "devices_per_node": case.cluster.devices_per_node, "global_batch": case.batch.global_batch_sequences,
        "sequence": case.batch.sequence_tokens,
    }
    saved = plan_file(request, estimate)
    files = [*written, File(path=saved.path, text=saved.text)]
    whole, layers = given.case.model.num_layers, case.model.num_layers
    told = f"all {whole} layers" if layers == whole else f"{layers} of the {whole} layers"
    words = PROBE.format(layers=told, devices="1 device" if small.world == 1 else f"{small.world} devices")
    return words, [replace(file, path=f"probe/{file.path}") for file in files]


_NOT_OF_A_PROBE = frozenset({"cluster", "nodes", "spare_nodes", "lengths", "max_tokens", "packs", "split_long"})
"""A probe has its own size, and full sequences."""

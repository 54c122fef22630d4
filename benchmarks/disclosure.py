"""What predictions have seen of the rows that they are scored on, beside what a fold holds out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.catalog.calibrations import constant_figures, freedoms

if TYPE_CHECKING:
    from meshwright.evidence.score.validation import Validation

FAMILIES = ("hopper", "ampere", "blackwell", "volta", "ascend")
FROM_ROWS = re.compile(
    r"playbook|corpus|torchtitan tables|(bloom|vtrain|mpt|internevo|megatron|nemo|bridge|nvidia|ascend|simumax) rows", re.IGNORECASE
)
"""How the source of a prior says that it was read off runs of the corpus."""
MORE = (
    "How nanotron runs a layer (`catalog/data/implementations.yaml`) was corrected after looking at the playbook's residuals.",
    "The terms for nanotron's host time, collective skew and stalls (`collective_*`, `stall_*`) exist because playbook rows were "
    "looked at: both their form and their prior values come from those residuals. Held-out folds fit the values again, from wide "
    "priors; they do not choose the form again.",
    "The network latency of cluster `p5` is read from that cluster's collective benchmark (`collective_bandwidth.csv`).",
    "The form of a formula, and which constants it has, was chosen by people who had seen all rows.",
)


def is_fitted(validation: Validation) -> bool:
    """Whether anything was fitted; else the rows are predicted by the priors alone."""
    return validation.calibration != "none@0"


def how(validation: Validation) -> str:
    """What predicted the rows, and what it may have seen of them."""
    named = f"{len(seen_priors())} priors and the form of some formulas were chosen with these rows in view"
    if not is_fitted(validation):
        return f"The priors of the catalogue (`none@0`) predict the rows, without any fit. This is no held-out test: {named}."
    return (
        f"Each row is predicted by a fit that has not seen it or a re-measurement of it ({validation.folds} folds). The fit alone "
        f"is held out: {named}."
    )


def subtitle(validation: Validation) -> str:
    """The same in a few words, for pictures."""
    return "out-of-fold fits" if is_fitted(validation) else "priors, not held out"


def seen_priors() -> dict[str, tuple[str, str, bool]]:
    """Constants whose prior was read off rows: value with unit, source, and whether a fold fits them again."""
    refitted = {each.name for each in freedoms()}
    found: dict[str, tuple[str, str, bool]] = {}
    for family in FAMILIES:
        for name, figure in constant_figures(family).items():
            if FROM_ROWS.search(str(figure["source"])):
                found[name] = (f"{figure['value']} {figure['unit']}", str(figure["source"]), name in refitted)
    return found


def section() -> list[str]:
    """The list of what was seen, as Markdown."""
    lines = ["A fold holds rows out of the fit of the constants. It cannot hold out what people took from the rows before:", ""]
    lines += [f"- {text}" for text in MORE]
    lines += ["- Priors read off rows, the held-out ones among them:", ""]
    lines += ["| constant | prior | in the folds | source |", "| --- | --- | --- | --- |"]
    for name, (value, source, refitted) in seen_priors().items():
        lines.append(f"| `{name}` | {value} | {'fitted again from this prior' if refitted else 'kept as it is'} | {source} |")
    return [*lines, "", "Errors of the sets that those rows belong to are therefore optimistic, under every scheme."]

"""A request file: the options of a verb as YAML keys. A saved ``plan.yaml`` is one too, with its layout."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.options import known_keys
from meshwright.errors import MeshwrightError, did_you_mean, fault, nearest
from meshwright.text import kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.fields import Faults

PLAN_FILE, CONFIG_FILE = "plan.yaml", "config.json"
PLAN_KEY = "meshwright_plan"
YAML = (".yaml", ".yml")
MOST_UNKNOWN = 20
"""Keys for which what was meant is looked for."""
PLAN_KEYS = (PLAN_KEY, "request", "layout", "predicted")


def saved_plan(where: str) -> Path | None:
    """The saved plan at a path: the file, or that of a directory which holds no model; None where it is something else."""
    path = Path(where)
    try:
        if path.is_dir() and not (path / CONFIG_FILE).exists():
            path /= PLAN_FILE
        if path.suffix.lower() not in YAML or not path.is_file():
            return None
        from meshwright.readers.safe_yaml import load_yaml

        document = load_yaml(path)
    except (MeshwrightError, OSError, ValueError):  # whoever reads it says what is wrong with it
        return None
    return path if isinstance(document, dict) and PLAN_KEY in document else None


def read_request_file(where: str, faults: Faults) -> Mapping[str, Any]:
    """Key -> value as written; unknown keys are faults with a suggestion each, of all of them at once."""
    from meshwright.readers.safe_yaml import load_yaml

    document = load_yaml(where)
    if not isinstance(document, dict):
        template = "holds {kind}: a request has options as keys, with their values"
        raise fault("request.kind", template, path=where, kind=kind(document))
    if PLAN_KEY in document:
        document = flat_plan(document, where, faults)
    known = known_keys()
    values = {str(key).replace("-", "_"): value for key, value in document.items()}
    unknown = [key for key in values if key not in known]
    for key in unknown[:MOST_UNKNOWN]:
        hint = did_you_mean(key, known) or "; `meshwright plan --help` lists them"
        faults.add("request.key", "unknown key {key!r}{hint}", path=where, key=key, hint=hint)
        faults.failed.update(get_close_matches(key, known, n=1))  # what was meant is not missing
    _more(unknown, where, faults)
    return {key: value for key, value in values.items() if value is not None}


def _more(unknown: Sequence[str], where: str, faults: Faults) -> None:
    """One fault for all unknown keys that are not named."""
    if len(unknown) > MOST_UNKNOWN:
        faults.add("request.keys", "{count:,} more unknown keys", path=where, count=len(unknown) - MOST_UNKNOWN)


def flat_plan(document: Mapping[str, Any], where: str, faults: Faults) -> dict[str, Any]:
    """The request of a saved plan with the layout that was chosen."""
    unknown = [key for key in document if key not in PLAN_KEYS]
    for key in unknown[:MOST_UNKNOWN]:
        hint = nearest(str(key), PLAN_KEYS)
        faults.add("request.plan-key", "unknown key {key!r} of a plan{hint}", path=where, key=key, hint=hint)
    _more(unknown, where, faults)
    request, layout = document.get("request"), document.get("layout")
    if not isinstance(request, dict):
        template = "holds {kind}: a plan has its options there, with their values"
        faults.add("request.plan", template, path=f"{where}: request", kind=kind(request))
        faults.failed.update(known_keys())  # what cannot be read is not missing
    if not isinstance(layout, str):
        faults.add("request.plan", "holds {kind}: a plan has its label there", path=f"{where}: layout", kind=kind(layout))
        faults.failed.add("layout")
    return {**_with_packs(request if isinstance(request, dict) else {}), **({"layout": layout} if isinstance(layout, str) else {})}


def _with_packs(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request of a plan from before packs had a cap: its batch counted packed sequences, and long documents were cut."""
    if "lengths" not in request or {"max_tokens", "packs"} & set(request) or not {"global_batch", "sequence"} <= set(request):
        return dict(request)
    kept = {name: value for name, value in request.items() if name != "global_batch"}
    return kept | {"packs": request["global_batch"], "max_tokens": request["sequence"], "split_long": True}

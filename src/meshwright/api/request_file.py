"""A request file: the options of a verb as YAML keys. A saved ``plan.yaml`` is one too, with its layout."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from meshwright.api.options import known_keys
from meshwright.errors import did_you_mean, fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.fields import Faults

PLAN_KEY = "meshwright_plan"
PLAN_KEYS = (PLAN_KEY, "request", "layout", "predicted")


def read_request_file(where: str, faults: Faults) -> Mapping[str, Any]:
    """Key -> value as written; unknown keys are faults with a suggestion each, of all of them at once."""
    from meshwright.readers.safe import load_yaml

    document = load_yaml(where)
    if not isinstance(document, dict):
        raise fault("request.kind", "a request is a mapping of option to value", path=where)
    if PLAN_KEY in document:
        document = flat_plan(document, where, faults)
    known = known_keys()
    values = {str(key).replace("-", "_"): value for key, value in document.items()}
    for key in values:
        if key not in known:
            faults.add("request.key", "unknown key {key!r}{hint}", path=where, key=key, hint=did_you_mean(key, known))
            faults.failed.update(get_close_matches(key, known, n=1))  # what was meant is not missing
    return {key: value for key, value in values.items() if value is not None}


def flat_plan(document: Mapping[str, Any], where: str, faults: Faults) -> dict[str, Any]:
    """The request of a saved plan with the layout that was chosen."""
    for key in document:
        if key not in PLAN_KEYS:
            hint = did_you_mean(str(key), PLAN_KEYS)
            faults.add("request.plan-key", "unknown key {key!r} of a plan{hint}", path=where, key=key, hint=hint)
    request = document.get("request")
    if not isinstance(request, dict) or not isinstance(document.get("layout"), str):
        faults.add("request.plan", "a plan needs 'request' (a mapping) and 'layout' (a label)", path=where)
        faults.check()
    assert isinstance(request, dict), "faults.check() raises where there is one"
    return {**request, "layout": document["layout"]}

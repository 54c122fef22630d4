"""What any framework adapter must pass, built in or a plugin: random plans, and the promises that hold for each.

    from meshwright.testing import conformance

    @pytest.mark.parametrize("promise", conformance("mine").values(), ids=conformance("mine"))
    def test_promise(promise):
        promise()

``legal_plans`` gives plans for oracles: the framework's own parser on what is written. Needs ``hypothesis``.
"""

from __future__ import annotations

from meshwright.testing.plans import FEATURES, any_plans, legal_plans, offered
from meshwright.testing.promises import conformance

__all__ = ["FEATURES", "any_plans", "conformance", "legal_plans", "offered"]

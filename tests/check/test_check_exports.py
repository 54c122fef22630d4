"""What Meshwright writes passes its own check: no error and no warning but for memory."""

from __future__ import annotations

import pytest
from check_cases import judged
from tests.draws import draws

from meshwright.check.run import CHECKS
from meshwright.check.waste import waste
from meshwright.frameworks import File, framework, frameworks
from meshwright.testing import legal_plans

QUICK = tuple(each for each in CHECKS if each is not waste)
MEMORY = {"check.memory", "check.memory-tight", "check.host-memory"}
ABLE = [name for name in frameworks() if framework(name).interpreter is not None and framework(name).writer is not None]


def launched(files: tuple[File, ...]) -> dict[str, str]:
    """The files of the run itself: no manual, no probe, no patch."""
    return {
        file.path: file.text for file in files if not file.path.startswith("probe") and not file.path.endswith((".md", ".patch"))
    }


@pytest.mark.parametrize("name", ABLE)
def test_exported_files_pass(name):
    named = framework(name)
    for case, layout in legal_plans(name, draws(3), seed=5):
        checked = judged(launched(named.write(case, layout)), f"{name}@{named.version}", case, checks=QUICK)
        wrong = [each for each in checked.findings if each.severity != "advice" and each.message.id not in MEMORY]
        assert [str(each.message) for each in wrong] == []
        assert checked.skipped == ()

"""A sample of the coherence campaign (``python -m benchmarks.coherence``, docs/coherence.md): other seeds by MESHWRIGHT_FUZZ."""

from pathlib import Path

import yaml
from benchmarks.coherence.campaign import run
from benchmarks.coherence.draw import shell
from tests.draws import FUZZ, draws

OPEN = {each["law"] for each in yaml.safe_load((Path(__file__).parents[1] / "benchmarks/coherence/open.yaml").read_text())}
"""Laws that are known to be broken, each with why."""
CASES = 4


def test_drawn_cases_have_one_answer_from_every_verb(capfd):
    seed = str(1515 + FUZZ)
    with capfd.disabled():
        print(f"\ncoherence sample: python -m benchmarks.coherence --seed {seed} --cases {draws(CASES)}", flush=True)
    broken = []
    for number in range(draws(CASES)):
        options, _, asked = run(seed, number)
        broken += [f"case {number}: {each.law}: {each.broken}\n  {shell(each.verb, {**options, **each.more})}"
                   for each in asked if each.broken and each.law not in OPEN]
    assert not broken, "\n".join(broken)

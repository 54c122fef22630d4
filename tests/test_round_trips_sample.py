"""A sample of plans written and read again (``python -m benchmarks.round_trips``): other seeds by MESHWRIGHT_FUZZ."""

import random

from benchmarks.round_trips.draw import drawn
from benchmarks.round_trips.trial import asked

from draws import FUZZ, draws

CASES = 16


def test_drawn_plans_come_back_as_they_were_written(capfd):
    seed = str(77 + FUZZ)
    with capfd.disabled():
        print(f"\nround trips sample: python -m benchmarks.round_trips --seed {seed} --cases {draws(CASES)}", flush=True)
    broken = []
    for number in range(draws(CASES)):
        plan = drawn(random.Random(f"{seed}/{number}"))
        broken += [f"case {number}: {each.law}: {each.broken}\n  {plan.release} {plan.request} {plan.label}"
                   for each in asked(plan) if each.broken]
    assert not broken, "\n".join(broken)

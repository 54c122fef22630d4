"""A sample of the coherence campaign (``python -m benchmarks.coherence``, docs/coherence.md): other seeds by MESHWRIGHT_FUZZ."""

import dataclasses
import random
import shlex
from pathlib import Path

import pytest
import yaml
from benchmarks.coherence.campaign import run
from benchmarks.coherence.draw import drawn, shell
from tests.draws import FUZZ, draws

import meshwright as mw

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


@pytest.mark.parametrize(("verb", "request_of", "more"), [
    ("plan", mw.PlanRequest, {"pin": ["tp=2", "pp=4"]}), ("estimate", mw.EstimateRequest, {"layout": "tp2"}),
    ("explain", mw.ExplainRequest, {"layout": "tp2"}), ("atlas", mw.AtlasRequest, {}),
    ("check", mw.CheckRequest, {"files": ["out/train.sh", "out/a.json"], "from_": "deepspeed"}),
])
def test_the_command_that_repeats_a_question_is_one_of_its_verb(verb, request_of, more):
    known = {each.name.rstrip("_").replace("_", "-") for each in dataclasses.fields(request_of)}
    for number in range(draws(60)):
        options = {**drawn(random.Random(str(number))), **more}
        if verb == "atlas" and {"layers", "lengths"} & options.keys():
            continue
        program, said, *words = shlex.split(shell(verb, options))
        assert (program, said) == ("meshwright", verb)
        first = next(place for place, word in enumerate(words) if word.startswith("--"))
        assert words[:first] == ([] if verb == "atlas" else more["files"] if verb == "check" else [options["model"]])
        assert {word[2:] for word in words if word.startswith("--")} <= known

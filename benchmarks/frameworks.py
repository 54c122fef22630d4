"""What each framework can run, and what its own parser says of what is written for it.

python -m benchmarks.frameworks [--write] [--plans 200] [--each 20] [--only NAME] [--registry]

For every framework whose parser can be executed here: random legal plans, and some for each feature that it offers, are written
and judged. The reverse: random plans, legal or not, are written as far as the writer can; of those that the parser accepts,
how many the limits allow too, or refuse for what the framework only notices later or never. Parsers that need a checkout are
named by environment variables (``tests/frameworks/oracles_run.py``); without one, what was measured last stands.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.verdicts import reasons_of, row_of, tables
from meshwright.errors import InputError
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.resume import ORDER
from meshwright.testing import any_plans, legal_plans, offered
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks import Framework

    Plan = tuple[Case, Layout]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "frameworks.md"
MEASURED = ROOT / "benchmarks" / "frameworks.json"
"""What was measured last, by framework and release; ``docs/frameworks.md`` follows from it and from the registry."""
ONLY_READ = "only read: names, types, choices and rules against its sources"
PARSERS = {
    "accelerate": "1.14.0 executed", "deepspeed": "0.19.8 executed",
    "mindformers": "2.1.0 executed; graph and experimental only read",
    "nanotron": "executed from a checkout", "picotron": "executed from a checkout", "chatlearn": "executed from a checkout",
    "torchtitan": "0.2.2 and 0.3.0 executed; main only read", "megatron-deepspeed": "executed from a checkout",
    "llama-factory-megatron": "executed from a checkout",
    "llama-factory-hf": "main executed from a checkout; 0.9.4 and 0.9.5 only read",
    "megatron": "executed from a checkout of each release", "bridge": "executed from a checkout of each release",
}
"""Framework -> which of its parsers judge; the others are only read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one parser said."""

    name: str
    parser: str
    accepted: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    reverse_accepted: int = 0
    """Random configurations that the parser takes."""
    reverse_allowed: int = 0
    """Of them those that the limits allow."""
    reverse_later: int = 0
    """Of them those whose broken limits are all noticed later, or never."""
    contradicted: Counter[str] = field(default_factory=Counter)
    """Limits said to be noticed by the parser, which did not."""

    @property
    def reverse_share(self) -> float:
        """Of what the parser takes, the share that the limits explain."""
        return (self.reverse_allowed + self.reverse_later) / self.reverse_accepted if self.reverse_accepted else 1.0


def as_many(plans: Iterator[Plan]) -> Iterator[Plan]:
    """Plans until no more are found: some features are legal in few corners only."""
    with suppress(AssertionError):
        yield from plans


def measure(judge, plans: int, each: int) -> Measured:  # type: ignore[no-untyped-def]
    """Forward and reverse for one judge."""
    name = judge.framework
    there = framework(name)
    drawn = [("any", plan) for plan in legal_plans(name, plans, seed=11)]
    for feature in offered(there.features):
        drawn += [(feature, plan) for plan in as_many(legal_plans(name, each, seed=12, feature=feature))]
    verdicts = judge.verdicts([(there.write(*plan), *plan) for _, plan in drawn])
    accepted, asked, refusals = Counter(), Counter(), Counter()
    for (feature, _), verdict in zip(drawn, verdicts, strict=True):
        asked[feature] += 1
        accepted[feature] += verdict["accepted"]
        if not verdict["accepted"]:
            refusals[verdict["why"][:160]] += 1
    noticed = {limit.id: limit.noticed for limit in there.limits}
    taken, allowed, later, contradicted = 0, 0, 0, Counter()
    written, broken_ids = [], []
    for plan in any_plans(name, plans, seed=13):
        ids = {message.id for message in there.check(*plan)}
        try:
            written.append((replace(there, limits=()).write(*plan), *plan))
        except (InputError, AssertionError, LookupError, ValueError, TypeError, ArithmeticError):
            continue  # what no key says
        broken_ids.append(ids)
    for ids, verdict in zip(broken_ids, judge.verdicts(written), strict=True):
        if verdict["accepted"]:
            parsed = {one for one in ids if noticed[one] == "parse"}
            taken, allowed, later = taken + 1, allowed + (not ids), later + bool(ids and not parsed)
            contradicted.update(parsed)
    return Measured(
        name=name, parser=judge.parser, accepted=accepted, asked=asked, refusals=refusals, reverse_accepted=taken,
        reverse_allowed=allowed, reverse_later=later, contradicted=contradicted,
    )


def measured() -> list[Measured]:
    """What was measured last, in the order of names."""
    kept = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else []
    counters = ("accepted", "asked", "refusals", "contradicted")
    return [Measured(**one | {name: Counter(one[name]) for name in counters}) for one in kept]


def keep(found: list[Measured]) -> None:
    """Put new measurements in the place of old ones."""
    together = {one.name: one for one in (*measured(), *found)}
    text = json.dumps(
        [{each.name: getattr(together[name], each.name) for each in fields(Measured)} for name in sorted(together)], indent=1
    )
    MEASURED.write_text(text + "\n", encoding="utf-8")


def measured_table(found: list[Measured]) -> str:
    """What the parsers said, as Markdown."""
    lines = [
        "| framework | executed | plans | accepted | random configurations taken | limits allow | noticed later or never "
        "| explained |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one.name} | {one.parser} | {one.asked.total()} | {one.accepted.total()} | {one.reverse_accepted} "
        f"| {one.reverse_allowed} | {one.reverse_later} | {percent(one.reverse_share)} |"
        for one in found
    ]
    features = list(dict.fromkeys(feature for one in found for feature in one.asked if feature != "any"))
    lines += ["", "Accepted of asked, by feature; blank: the framework does not have it.", ""]
    lines += [f"| feature | {' | '.join(one.name for one in found)} |", f"| --- |{' ---: |' * len(found)}"]
    for feature in ("any", *features):
        cells = [f"{one.accepted[feature]} of {one.asked[feature]}" if one.asked[feature] else "" for one in found]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    for one in found:
        lines += [f"\n{one.name} refused {times} times: `{why}`" for why, times in one.refusals.most_common(3)]
        lines += [f"\n{one.name} takes what {rule} refuses, {times} times." for rule, times in one.contradicted.items()]
    return "\n".join(lines) + "\n"


def verdicts_table() -> str:
    """What every framework that was executed said of what is written for it, release by release, and which were not."""
    kept = tables()
    from_source = {table.name for table in kept}
    rows = {table.name: row_of(table) for table in kept} | {
        one.name: f"| {one.name} | {one.parser}, wheel | {one.accepted.total()} of {one.asked.total()} | - |"
        for one in measured() if one.name not in from_source
    }
    releases = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases]
    read = ", ".join(name for name in releases if name not in rows)
    lines = ["| framework | executed | accepted as written | refused by check of what it refuses |", "| --- | --- | ---: | ---: |"]
    lines += [rows[name] for name in sorted(rows)]
    lines += ["", f"Not executed, only read: {read}.", "",
              "What they say of what they refuse, and the rule of `check` whose words are nearest:", "",
              "| framework | times | the framework's words | rule |", "| --- | ---: | --- | --- |"]
    lines += [row for table in kept for row in reasons_of(table)]
    return "\n".join(lines) + "\n"


def registry_row(there: Framework) -> str:
    """What the registry knows of a framework, as a row."""
    surface = there.surface() if there.surface is not None else None
    keys = f"{len(surface.at(there.version)):,}" if surface is not None else ""
    return (
        f"| {there.title} | {', '.join(there.releases)} | {there.version} | {keys} | {', '.join(offered(there.features))} "
        f"| {len(there.limits)} | {len(there.checks)} | {PARSERS.get(there.name, ONLY_READ)} |"
    )


def registry_table() -> str:
    """One row for each framework."""
    head = [
        "| framework | releases | default | keys | can run | limits | checks | its parser |",
        "| --- | --- | --- | ---: | --- | ---: | ---: | --- |",
    ]
    return "\n".join([*head, *(registry_row(framework(name)) for name in frameworks())]) + "\n"


def section(there: Framework) -> str:
    """What a framework cannot say, and what changes mean for a run that resumes."""
    lines = [f"## {there.title}", ""]
    if there.unspoken:
        lines += ["Without a key, and lost between writing and reading:", "", *(f"- {word}" for word in there.unspoken), ""]
    lines += ["Going on from a checkpoint:", ""]
    for resume in ORDER:
        by_reason: dict[str, list[str]] = {}
        for knob, meaning in there.resume.items():
            if meaning.resume == resume:
                by_reason.setdefault(meaning.reason, []).append(f"`{knob}`")
        lines += [f"- {resume} ({', '.join(knobs)}): {reason}" for reason, knobs in by_reason.items()]
    return "\n".join(lines) + "\n"


def page() -> str:
    """docs/frameworks.md: the registry's part, with what was measured in its midst."""
    sections = "\n".join(section(framework(name)) for name in frameworks())
    return f"""# Frameworks

Written by `python -m benchmarks.frameworks --write`; the figures of the parsers are those measured last
(`benchmarks/frameworks.json`), the rest follows from the registry.

*Keys*: what the framework's parser knows at the default release. *Limits*: rules a plan must keep to be written. *Checks*: rules
about files (`meshwright check`), beside unknown keys, wrong types and wrong choices, which are found from the keys.

{registry_table()}
## What their own parsers say

Random legal plans, and some for each feature, written and given to the framework's own parser. Then random configurations,
legal or not: of those that the parser takes, the limits allow some, and refuse others for what the framework notices only
later (building groups, the first step) or never; the rest would be our mistake.

{measured_table(measured())}
## Verdicts

What a framework itself said of plans as they are written: of each feature, task, dense models and mixtures. Then of configurations
that it refuses (illegal plans, and for Bridge single words changed), how many `meshwright check` refuses too. `wheel`: asked by the
tests themselves whenever they run. A commit: asked from a checkout (`python -m benchmarks.verdicts`); `benchmarks/verdicts/` keeps
each plan, the verdict and a hash of what was read, a test writes the plans again and compares, so that a writer that says something
else asks for new verdicts.

{verdicts_table()}
{sections}"""


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} too")
    parser.add_argument("--registry", action="store_true", help=f"ask no parser: only renew {PAGE.name}")
    parser.add_argument("--plans", type=int, default=200, help="random plans for each parser")
    parser.add_argument("--each", type=int, default=20, help="plans for each feature")
    parser.add_argument("--only", help="one framework")
    options = parser.parse_args(arguments)
    if not options.registry:
        sys.path.insert(0, str(ROOT / "tests" / "frameworks"))
        from judged import judges

        for judge in judges():
            if options.only not in {None, judge.framework, judge.framework.partition("@")[0]}:
                continue
            if why := judge.absent():
                sys.stdout.write(f"{judge.framework}: not asked, {why}\n")
                continue
            found = measure(judge, options.plans, options.each)
            keep([found])
            sys.stdout.write(
                f"{judge.framework}: {found.accepted.total()} of {found.asked.total()} accepted; "
                f"of {found.reverse_accepted} taken {percent(found.reverse_share)} explained\n"
            )
    if options.write or options.registry:
        PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The promises of an adapter, each as a test over random plans."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

from meshwright.documents.source import UNKNOWN
from meshwright.domain.label import label
from meshwright.errors import MeshwrightError
from meshwright.frameworks import framework as framework_named
from meshwright.frameworks.editing import edit
from meshwright.frameworks.settings import Given
from meshwright.frameworks.surface import typed
from meshwright.search import layout_refusals
from meshwright.testing.plans import draw_plan, is_legal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks import File, Framework
    from meshwright.frameworks.settings import Reading

Promise = Callable[["Framework", "Case", "Layout"], None]


def conformance(name: str, *, examples: int = 30, seed: int | None = None) -> dict[str, Callable[[], None]]:
    """Every promise of a framework (``name``, or ``name@version``) as a test without arguments, by its name.

    ``examples`` plans for each promise, which the framework can write, or four times as many of any kind where it is about those
    as well; the same ones every time, or others for each ``seed``.
    """
    return {promise.__name__.removeprefix("_"): partial(_run, promise, name, examples, seed) for promise in PROMISES}


def _run(promise: Promise, name: str, examples: int, chosen: int | None) -> None:
    """One promise over random plans."""
    framework = framework_named(name)
    examples *= 4 if promise in OF_ANY_PLAN else 1

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.data())
    def holds(data: Any) -> None:
        def choose(options: Sequence[Any]) -> Any:
            return options[data.draw(st.integers(0, len(options) - 1))]  # an index: a case would fill pages when it fails

        case, layout = draw_plan(framework, name, choose)
        assume(promise in OF_ANY_PLAN or is_legal(framework, case, layout))
        promise(framework, case, layout)

    (holds if chosen is None else seed(chosen)(holds))()


def _reads_what_it_writes(framework: Framework, case: Case, layout: Layout) -> None:
    """Reading the files gives the layout (in its normal form), the batch, the sequence and the devices back."""
    reading = read_back(framework, case, framework.write(case, layout))
    expected = framework.normal(case, layout)
    assert reading.layout is not None, f"{label(layout)}: no layout: {'; '.join(map(str, reading.messages))}"
    odd = {
        field.name: (getattr(reading.layout, field.name), getattr(expected, field.name))
        for field in fields(expected) if getattr(reading.layout, field.name) != getattr(expected, field.name)
    }
    assert not odd, f"{case.model.name} {label(layout)}: read, written: {odd}"
    for name, value in (
        ("global_batch_sequences", case.batch.global_batch_sequences),
        ("sequence_tokens", case.batch.sequence_tokens),
    ):
        said = getattr(reading.said, name)
        assert said in {None, value}, f"{label(layout)}: {name} is read as {said}, not {value}"


def _normal_form_is_stable(framework: Framework, case: Case, layout: Layout) -> None:
    """The normal form of a normal form is itself, and it is as legal as the layout."""
    once = framework.normal(case, layout)
    assert framework.normal(case, once) == once, label(layout)
    assert not framework.check(case, once), f"{label(layout)}: its normal form {label(once)} is refused"


def _files_are_whole(framework: Framework, case: Case, layout: Layout) -> None:
    """Files have unique relative names, text that ends its last line, a README, and are the same each time."""
    files = framework.write(case, layout)
    paths = [file.path for file in files]
    assert len(set(paths)) == len(paths) and "README.md" in paths, paths
    for file in files:
        assert not PurePosixPath(file.path).is_absolute() and ".." not in PurePosixPath(file.path).parts, file.path
        assert file.text.endswith("\n") and "{{" not in file.text.replace("${{", ""), file.path
    assert files == framework.write(case, layout)


def _keys_are_known(framework: Framework, case: Case, layout: Layout) -> None:
    """Every key that expresses a layout is in the surface of the release, with a knob and a value of its type."""
    assert framework.decide is not None and framework.surface is not None, f"{framework.name} is not complete"
    surface = framework.surface()
    for key, value in framework.settings(case, layout).items():
        known = surface.find(key, framework.version)
        assert known is not None, f"{key} is in no surface of {framework.version}"
        assert known.knob, f"{key} expresses a layout, but has no knob"
        typed(known, value)
    for key, setting in read_back(framework, case, framework.write(case, layout)).source.settings.items():
        known = surface.find(key, framework.version)
        assert known is not None or framework.unknown_keys(key) is None, f"{key} is written, but unknown in {framework.version}"
        if known is not None and setting.value is not None and setting.value is not UNKNOWN:
            typed(known, setting.value)


def _own_files_are_clean(framework: Framework, case: Case, layout: Layout) -> None:
    """What is written breaks none of the framework's checks of files."""
    reading = read_back(framework, case, framework.write(case, layout))
    found = [finding for check in framework.checks for finding in check.findings(reading, case) if finding.severity != "advice"]
    assert not found, f"{case.model.name} {label(layout)}: {'; '.join(str(each.message) for each in found)}"


def _edits_are_minimal(framework: Framework, case: Case, layout: Layout) -> None:
    """Writing the layout that the files already have changes nothing; another one is what is read afterwards."""
    files = configuration(framework.write(case, layout))
    reading = read_back(framework, case, files)
    assert reading.layout is not None
    assert not edit(framework, reading, case, reading.layout).edits
    other = _neighbour(layout)
    if other is not None and is_legal(framework, case, other):
        edited = edit(framework, reading, case, other)
        changed = {file.path: file for file in edited.files}
        again = read_back(framework, case, [changed.get(file.path, file) for file in files])
        assert again.layout == framework.normal(case, other), f"{label(layout)} -> {label(other)}:\n{edited.diff}"


def _neighbour(layout: Layout) -> Layout | None:
    """A layout with one knob changed: half the tensor parallelism, or half the micro-batch."""
    if layout.microbatch_sequences > 1:
        return replace(layout, microbatch_sequences=layout.microbatch_sequences // 2, num_microbatches=layout.num_microbatches * 2)
    return None


def _refusals_have_reasons(framework: Framework, case: Case, layout: Layout) -> None:
    """What is refused is refused with an identifier of the framework's and words without gaps; what is not is written."""
    messages = framework.check(case, layout)
    for message in messages:
        assert message.id.startswith(f"{framework.name}."), message.id
        assert str(message).strip(), message.id
    if not messages and not layout_refusals(case, framework.features, layout):
        assert framework.write(case, layout)


def _limits_know_arithmetic(framework: Framework, case: Case, layout: Layout) -> None:
    """What no framework can compute, its limits refuse as well: a file with such a layout is then found wrong."""
    if framework.check(case, layout):
        return
    reasons = [reason for reason in layout_refusals(case, framework.features, layout) if not reason.startswith("the framework")]
    assert not reasons, f"{case.model.name} {label(layout)} passes the limits, but {'; '.join(reasons)}"


ODD: tuple[object, ...] = (
    None, "", "auto", "x" * 2000, "9" * 5000, "\u00b2", "1,2,3", True, False, -1, 0, 10**30, 1e308, 3.5, [], [1, [2]],
    [10**18] * 3, {"a": 1},
)
"""What somebody could put where a number, a word or a list is meant."""
ODD_VALUES = 2
"""So many for each plan."""


def _odd_values_are_answered(framework: Framework, case: Case, layout: Layout) -> None:
    """Whatever stands for a key, reading, checks and limits answer with messages, never with an error of Python's."""
    files, rng = configuration(framework.write(case, layout)), random.Random(label(layout))
    source = read_back(framework, case, files).source
    documents = {document.path: document for document in source.documents}
    for _ in range(ODD_VALUES):
        setting, value = rng.choice(list(source.settings.values())), rng.choice(ODD)
        try:
            text = documents[setting.file].changed({setting.key: value})
            changed = [replace(file, text=text) if file.path == setting.file else file for file in files]
            reading = read_back(framework, case, changed)
        except MeshwrightError:
            continue
        for check in framework.checks:
            assert all(str(each.message) for known in (case, None) for each in check.findings(reading, known))
        if reading.layout is not None:
            assert all(str(message) for message in framework.check(case, reading.layout))


PROMISES: tuple[Promise, ...] = (
    _reads_what_it_writes, _normal_form_is_stable, _files_are_whole, _keys_are_known, _own_files_are_clean, _edits_are_minimal,
    _refusals_have_reasons, _limits_know_arithmetic, _odd_values_are_answered,
)
OF_ANY_PLAN = {_refusals_have_reasons, _limits_know_arithmetic}
"""Promises that hold for plans that the framework refuses, too."""


def read_back(framework: Framework, case: Case, files: Sequence[File]) -> Reading:
    """The reading of written files, with what the case knows beside them."""
    given = Given(num_devices=case.cluster.num_devices, devices_per_node=case.cluster.devices_per_node, model=case.model)
    return framework.read(configuration(files), version=framework.version, given=given)


def configuration(files: Sequence[File]) -> list[File]:
    """The files that a framework reads: no README, no patch, no probe."""
    return [file for file in files if not file.path.endswith((".md", ".patch")) and not file.path.startswith("probe")]

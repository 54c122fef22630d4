"""The calls that most programs need: a case from names, the best plans of it, and files read and judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.domain.case import Case
from meshwright.domain.model import Model
from meshwright.domain.training import Lora, Task
from meshwright.frameworks import framework as framework_named
from meshwright.search.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from meshwright.api.request import Answer
    from meshwright.check import Checked
    from meshwright.domain.balance import Balance, Objective, Overfull
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.layout import Layout
    from meshwright.fix import Fixed
    from meshwright.frameworks.settings import Given, Reading
    from meshwright.search import PlanResult, SearchOptions


def html(answer: Answer) -> str:
    """The page of an answer: one HTML file that works offline, the same that ``--html FILE`` writes.

    Errors:  ``TypeError`` for an answer that has no page.
    """
    from meshwright.api.renderers import render

    return render("answer.html", answer)


def view(answer: Answer) -> dict[str, Any]:
    """What the page and the terminal show of an answer, as JSON: words, figures with their units, tables, charts by their data.

    Errors:  ``TypeError`` for an answer that has no page.
    """
    from meshwright.api.renderers import render

    found: dict[str, Any] = json.loads(render("answer.view", answer))
    return found


def make_case(
    model: str | Model, cluster: str | Cluster, *, global_batch_sequences: int, sequence_tokens: int, task: Task = "pretrain",
    precision: str = "bf16", optimizer: str = "adamw", gradient_dtype: str | None = None, framework: str = "megatron",
    implementation: str | None = None, lora: Lora | None = None, calibration: str = "shipped",
) -> Case:
    """A case from catalogue names or values.

    Errors:  ``InputError`` for unknown names and impossible sizes.
    """
    values = {
        "model": model, "cluster": cluster, "global_batch": global_batch_sequences, "sequence": sequence_tokens, "task": task,
        "precision": precision, "optimizer": optimizer, "gradient_dtype": gradient_dtype, "framework": framework,
        "implementation": implementation, "lora": lora, "calibration": calibration,
    }
    return setup({name: value for name, value in values.items() if value is not None}, Faults(), runs=False).case


def find_plans(
    case: Case,
    *,
    framework: str = "megatron",
    options: SearchOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PlanResult:
    """The best layouts of a case that a framework can run.

    Errors:  ``InputError`` where no layout is legal or pins contradict; that nothing fits is a verdict of the result.
    """
    return prepare(case, framework=framework).plan(options, progress)


def prepare(case: Case, *, framework: str = "megatron") -> Prepared:
    """A case that is asked about often: ``what_if`` estimates one layout, ``plan`` searches anew only what a changed pin changes.

    Errors:  ``InputError`` for an unknown framework.
    """
    runner = framework_named(framework).for_case(case)
    return Prepared(case=case, features=runner.features, runner=runner)


def balance_layers(
    path: str | Path, *, stages: int, microbatches: int, memory_mb: float | Sequence[float], virtual_stages: int = 1,
    schedule: str | None = None, hop_time: float = 0.0, objective: Objective = "slot", time_limit_s: float = 9.0,
) -> Balance | Overfull:
    """Layers of SAPP's layer file put on pipeline stages, and what each of them recomputes.

    ``memory_mb`` is what a stage may hold, or one bound for each; ``schedule`` a name of ``perf.schedules.ORDERS``, 1F1B or
    interleaved unless said. ``objective``: ``slot`` is the fastest pipeline among placements with the shortest slot,
    ``simulated`` the fastest of all.

    Units:   the file's own; memories in its megabytes.
    Errors:  ``InputError`` for a file or a pipeline that makes no sense; that nothing fits is an ``Overfull``.
    """
    from meshwright.readers.sapp import problem, read_layer_file
    from meshwright.search.balance.solve import balance

    implied = "interleaved" if virtual_stages > 1 else "1f1b"
    asked = problem(
        read_layer_file(path), stages=stages, microbatches=microbatches, memory_mb=memory_mb, chunks=virtual_stages,
        schedule=schedule or implied, hop_time=hop_time,
    )
    return balance(asked, objective=objective, time_limit_s=time_limit_s)


def balance_layout(
    case: Case, layout: Layout, *, framework: str = "megatron", objective: Objective = "simulated", time_limit_s: float = 9.0
) -> tuple[Layout, Balance] | Overfull:
    """A layout with its layers put on its stages anew, and recomputation by stage as far as the framework can say it.

    Degrees, virtual stages and the batch stay as they are.

    Units:   seconds and reserved bytes, by the cost model.
    Errors:  ``InputError`` for a layout that makes no sense; that nothing fits is an ``Overfull``.
    """
    from meshwright.domain.balance import Overfull
    from meshwright.search.balance.layouts import choices, layout_of, problem_of
    from meshwright.search.balance.solve import balance

    features = framework_named(framework).for_case(case).features
    found = [
        balance(problem_of(case, features, layout, choice), objective=objective, time_limit_s=time_limit_s)
        for choice in choices(features, layout)
    ]
    answers = [each for each in found if not isinstance(each, Overfull)]
    if not answers:
        return min((each for each in found if isinstance(each, Overfull)), key=lambda each: each.gap)
    best = min(answers, key=lambda each: each.best.simulated_time)
    return layout_of(layout, best.problem, best.best), best


def read_files(paths: Sequence[str | Path], framework: str, *, given: Given | None = None) -> Reading:
    """Files of a framework (``name`` or ``name@version``) as a layout, and what they leave open; nothing is run.

    ``given`` fills what they leave open.
    Errors:  ``InputError`` for files that cannot be read, or that are not in their own language.
    """
    from meshwright.frameworks import File
    from meshwright.frameworks.settings import NOTHING_GIVEN
    from meshwright.readers.safe import read_text

    named = framework_named(framework)
    files = [File(path=str(path), text=read_text(path)) for path in paths]
    return named.read(files, version=named.version if "@" in framework else None, given=given or NOTHING_GIVEN)


def check_files(
    paths: Sequence[str | Path], framework: str, *, case: Case | None = None, claims: Mapping[str, float] | None = None
) -> Checked:
    """Files of a framework, judged: by themselves, and for the case that they are to train where it is given.

    ``claims``: figures that somebody gives of the run, by the names of ``check.claim.NAMES``.
    Errors:  ``InputError`` as ``read_files``, and for unknown claims.
    """
    from meshwright.check import Question, check, claim
    from meshwright.frameworks.settings import Given

    given = None
    if case is not None:
        given = Given(
            num_devices=case.cluster.num_devices, devices_per_node=case.cluster.devices_per_node, model=case.model,
            global_batch_sequences=case.batch.global_batch_sequences, sequence_tokens=case.batch.sequence_tokens,
            task=case.training.task,
        )
    reading = read_files(paths, framework, given=given)
    return check(
        Question(
            framework=framework_named(framework).at(reading.version), reading=reading, case=case,
            model=case.model if case is not None else None,
            claims=tuple(claim(name, value) for name, value in (claims or {}).items()),
        )
    )


def fix_layout(
    case: Case, layout: Layout, *, framework: str = "megatron", message: str = "", memory_bytes: float | None = None,
    faster_ratio: float | None = None, devices: int | None = None, max_edits: int = 3,
) -> Fixed:
    """The smallest changes of a layout that make it fit, faster, legal, or run on other devices; ``message``: what a run said when
    it ran out of memory.

    Errors:  ``InputError`` for a message that is none.
    """
    from meshwright.fix import FixQuestion, fix
    from meshwright.readers.out_of_memory import read_out_of_memory

    return fix(
        FixQuestion(
            framework=framework_named(framework).for_case(case), case=case, layout=layout,
            messages=read_out_of_memory(message) if message else (), bound_bytes=memory_bytes, faster_ratio=faster_ratio,
            devices=devices, max_edits=max_edits,
        )
    )

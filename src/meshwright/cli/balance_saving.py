"""What ``balance`` writes: the answer, the frameworks' settings or launch files, the pictures."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from meshwright.api.saved import TextFile

if TYPE_CHECKING:
    from meshwright.api.balance.questions import Asked
    from meshwright.api.fields import Values
    from meshwright.api.views.balance import BalanceShown
    from meshwright.frameworks.stage_lists import Words
    from meshwright.report.pipeline_view import PipelineView

ANSWER_FILE, PICTURE_FILE, TRACE_FILE = "balance.json", "pipeline.svg", "pipeline.trace.json"


def check_targets(values: Values) -> None:
    """Refuse files that could not be written before anything is solved."""
    from meshwright.api.files import check_file, check_target
    from meshwright.errors import InputError

    inputs = [values[name] for name in ("model", "manual", "training_config") if name in values]
    for name in ("picture", "trace"):
        if name in values:
            check_file(values[name], inputs)
    if "save" in values and (faults := check_target(values["save"])):
        raise InputError(faults)


def write(values: Values, question: Asked, answer: BalanceShown) -> list[str]:
    """Write what was asked for; the paths."""
    from meshwright.api.files import write_file, write_files

    paths: list[str] = []
    if "save" in values:
        files = [_answer_file(question, answer), TextFile(path=PICTURE_FILE, text=picture(question, answer)),
                 TextFile(path=TRACE_FILE, text=trace(question, answer))]
        paths += write_files(values["save"], [*files, *_settings(question, answer)], force=values["force"])
    for name, draw in (("picture", picture), ("trace", trace)):
        if name in values:
            write_file(values[name], draw(question, answer))
            paths.append(str(values[name]))
    return paths


def _answer_file(question: Asked, answer: BalanceShown) -> TextFile:
    """The JSON of the answer, without durations, so that the same answer is the same file."""
    from meshwright.api.views.balance import balance_view

    document = {key: value for key, value in balance_view(answer).items() if key != "solve_s"}
    return TextFile(path=ANSWER_FILE, text=json.dumps({"name": question.name, **document}, indent=2, allow_nan=False) + "\n")


def _settings(question: Asked, answer: BalanceShown) -> list[TextFile]:
    """Launch files where there is a model, otherwise one file of settings for each framework."""
    if question.case is not None:
        from meshwright.api.balance.layouts import launch

        return launch(question.case, answer)
    return [_words_file(words) for words in answer.words if words.settings]


def _words_file(words: Words) -> TextFile:
    """The settings of one framework: YAML lines, or flags."""
    from meshwright.report.balance import setting_text

    name = re.sub(r"[^a-z0-9.]+", "-", words.framework.lower())
    flags = all(key.startswith("--") for key in words.settings)
    head = [
        f"# {words.framework}",
        *(f"# has no setting for {lack}" for lack in words.lacks),
        *(f"# {note}" for note in words.notes),
    ]
    lines = [setting_text(key, value) for key, value in words.settings.items()]
    return TextFile(path=f"{name}.{'args' if flags else 'yaml'}", text="\n".join([*head, *lines]) + "\n")


def picture(question: Asked, answer: BalanceShown) -> str:
    """The pipeline as SVG."""
    from meshwright.report.pipeline_picture import pipeline_picture

    return pipeline_picture(_view(question, answer))


def trace(question: Asked, answer: BalanceShown) -> str:
    """The pipeline as a trace for Perfetto."""
    from meshwright.report.perfetto import perfetto

    return perfetto(_view(question, answer))


def _view(question: Asked, answer: BalanceShown) -> PipelineView:
    """The simulated pipeline of an answer."""
    from meshwright.report.pipeline_view import pipeline_view

    return pipeline_view(question.name, answer.problem, answer.balance.best, answer.units)

"""What ``balance`` writes: the answer, the frameworks' settings or launch files, the pictures."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from meshwright.api.renderers import render
from meshwright.api.saved import TextFile

if TYPE_CHECKING:
    from meshwright.api.balancing.questions import Asked
    from meshwright.api.fields import Values
    from meshwright.api.views.balance import BalanceShown
    from meshwright.errors import Message
    from meshwright.frameworks.stage_lists import Words

ANSWER_FILE, PICTURE_FILE, TRACE_FILE = "balance.json", "pipeline.svg", "pipeline.trace.json"


def in_the_way(values: Values) -> list[Message]:
    """Files that could not be written, before anything is solved."""
    from meshwright.outputs import obstacles

    return obstacles([values[name] for name in ("picture", "trace") if name in values], folder=values.get("save", ""),
                     inputs=_inputs(values))


def write(values: Values, question: Asked, answer: BalanceShown) -> list[str]:
    """Write what was asked for; the paths."""
    from meshwright.outputs import Output, in_folder
    from meshwright.outputs import write as write_all

    outputs: list[Output] = []
    if "save" in values:
        files = [_answer_file(question, answer), TextFile(path=PICTURE_FILE, text=picture(question, answer)),
                 TextFile(path=TRACE_FILE, text=trace(question, answer))]
        outputs += in_folder(values["save"], [*files, *_settings(question, answer)])
    for name, draw in (("picture", picture), ("trace", trace)):
        if name in values:
            outputs.append(Output(path=values[name], text=draw(question, answer)))
    return write_all(outputs, force=values["force"], inputs=_inputs(values))


def _inputs(values: Values) -> list[str]:
    """Files that may be read."""
    return [values[name] for name in ("model", "manual", "training_config", "request", "cluster") if name in values]


def _answer_file(question: Asked, answer: BalanceShown) -> TextFile:
    """The JSON of the answer, without durations, so that the same answer is the same file."""
    from meshwright.api.views.balance import balance_view

    document = {key: value for key, value in balance_view(answer).items() if key != "solve_s"}
    return TextFile(path=ANSWER_FILE, text=json.dumps({"name": question.name, **document}, indent=2, allow_nan=False) + "\n")


def _settings(question: Asked, answer: BalanceShown) -> list[TextFile]:
    """Launch files where there is a model, otherwise one file of settings for each framework."""
    if question.case is not None:
        from meshwright.api.balancing.layouts import launch

        return launch(question.case, answer)
    return [_words_file(words) for words in answer.words if words.settings]


def _words_file(words: Words) -> TextFile:
    """The settings of one framework: YAML lines, or flags."""
    from meshwright.api.views.balance import setting_text
    from meshwright.documents.quoting import comment

    name = re.sub(r"[^a-z0-9.]+", "-", words.framework.lower())
    flags = all(key.startswith("--") for key in words.settings)
    head = [
        f"# {comment(words.framework)}",
        *(f"# has no setting for {comment(lack)}" for lack in words.lacks),
        *(f"# {comment(note)}" for note in words.notes),
    ]
    lines = [setting_text(key, value) for key, value in words.settings.items()]
    return TextFile(path=f"{name}.{'args' if flags else 'yaml'}", text="\n".join([*head, *lines]) + "\n")


def picture(question: Asked, answer: BalanceShown) -> str:
    """The pipeline as SVG."""
    return render("pipeline.svg", question.name, answer)


def trace(question: Asked, answer: BalanceShown) -> str:
    """The pipeline as a trace for Perfetto."""
    return render("pipeline.trace", question.name, answer)

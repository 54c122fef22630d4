"""The catalogue's parameters beside the classes of transformers: ``python -m benchmarks.models [--write]`` (docs/models.md)."""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.catalog.hf_equivalents import equivalents, rotary
from tests.catalog.hf_published import published_parameters_of_class
from tests.catalog.hf_towers import tower_of_class

from meshwright.catalog import load_model, models, provenance, published_parameters
from meshwright.domain.model import MixtureOfExperts
from meshwright.perf.parameters import active_parameters, total_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.model import Model

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
INTRODUCTION = """# Models of the catalogue

Written by `python -m benchmarks.models --write`. *Parameters* are counted by the cost model from the shapes in
`catalog/data/models/`, without layers that predict further tokens; *transformers* is what the class of transformers {version}
holds, built whole on the meta device (trainable parameters; score-correction biases are buffers here); *published* is the count
that the source of the entry prints, which may contain those biases. A star: figures that nobody published or that could not be
read are assumed, and `meshwright catalog models NAME` names them. A source says where a
figure is published; not every such file was read when the entry was written, and the count beside the class is what holds it.
How an entry is written: [adding-a-model.md](adding-a-model.md).

| model | layers | parameters | active a token | transformers | difference | published | source |
|---|---:|---:|---:|---:|---:|---:|---|"""


TOWERS = """What `--launch vision=frozen` and `vision=trained` count ([launch.md](launch.md)): every weight of the tower and of what
projects its output to the model's width, beside the vision part of the class on the meta device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model, counted three ways; None where nobody else counts."""

    model: Model
    counted: int
    built: int | None
    published: int | None
    source: str

    @property
    def differs(self) -> int:
        """Parameters that our count has too many (or, negative, too few), by the class."""
        return 0 if self.built is None else self.counted - self.built

    @property
    def misses_published(self) -> bool:
        """Whether the published count is neither ours nor ours with the score-correction biases."""
        blocks = [self.model.kinds[index].feed_forward for index in self.model.pattern]
        biases = sum(each.num_experts for each in blocks if isinstance(each, MixtureOfExperts) and each.correction_bias)
        return self.published not in (None, self.counted, self.counted + biases)


def main() -> int:
    """Print the table, or write the page; 1 where a count differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/models.md")
    parser.add_argument("names", nargs="*", help="only these models (not with --write)")
    asked = parser.parse_args()
    rows = [row_of(name) for name in asked.names or models()]
    text = "\n".join(page(rows)) + "\n"
    if asked.write and not asked.names:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return int(any(row.differs or row.misses_published for row in rows))


def row_of(name: str) -> Row:
    """A model of the catalogue with everybody's count."""
    model = load_model(name)
    return Row(
        model=model, counted=int(total_parameters(model)), built=built_parameters(model), published=published_parameters(name),
        source=provenance("model", name)["vocabulary"].source.removeprefix("assumed: "),
    )


def built_parameters(model: Model) -> int | None:
    """Trainable parameters of the class of transformers on the meta device; None where no class is exactly this model."""
    import torch
    import transformers

    if (count := published_parameters_of_class(model.name)) is not None:
        return count
    families = equivalents()
    if model.architecture not in families:
        return None
    class_name, fill = families[model.architecture]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        configuration = getattr(transformers, class_name)(**fill(model), **rotary(model))
        with torch.device("meta"):
            built = getattr(transformers, model.architecture)(configuration)
    return sum(each.numel() for each in built.parameters() if each.requires_grad)


def page(rows: Sequence[Row]) -> Iterator[str]:
    """The page, line by line."""
    import transformers

    yield INTRODUCTION.format(version=transformers.__version__)
    for row in rows:
        star = "*" if row.model.assumed else ""
        built = "no class" if row.built is None else f"{row.built:,}"
        published = "" if row.published is None else f"{row.published:,}"
        difference = "" if row.built is None else f"{row.differs:+,}" if row.differs else "0"
        source = row.source.replace("*", "\\*")
        yield (
            f"| {row.model.name}{star} | {row.model.num_layers} | {row.counted:,} | {active_parameters(row.model) / 1e9:,.2f} B | "
            f"{built} | {difference} | {published} | {source} |"
        )
    yield ""
    with_class = [row for row in rows if row.built is not None]
    published = [row for row in rows if row.published is not None]
    equal, met = sum(not row.differs for row in with_class), sum(not row.misses_published for row in published)
    yield (
        f"{len(rows)} models; {len(with_class)} have a class, and {equal} of these are equal to the last parameter. "
        f"{met} of {len(published)} published counts are met."
    )
    yield from towers([row.model for row in rows])


def towers(listed: Sequence[Model]) -> Iterator[str]:
    """Vision towers of these models beside those of their class; nothing where none has one."""
    seen = [model for model in listed if model.vision is not None]
    if not seen:
        return
    yield from ("", "## Vision towers", "", TOWERS, "")
    yield "| model | tower | parameters | transformers | difference | with its model |"
    yield "|---|---|---:|---:|---:|---:|"
    for model in seen:
        tower = model.vision
        assert tower is not None, "only models with one are listed"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built = tower_of_class(model.name)
        whole = total_parameters(replace(model, tower=tower))
        differs = tower.parameters - built
        yield (
            f"| {model.name} | {tower.layers} layers of {tower.hidden:,} | {tower.parameters:,} | {built:,} | "
            f"{f'{differs:+,}' if differs else '0'} | {whole:,} |"
        )


if __name__ == "__main__":
    raise SystemExit(main())

"""Rules as data: a decorator that turns a predicate into a ``Limit``, and what the predicates share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from meshwright.frameworks.base import Limit, Noticed, Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Attention

Predicate: TypeAlias = "Callable[[Case, Layout], Values | None]"


def rule(
    into: list[Limit], id: str, words: str, *, noticed: Noticed = "parse", path: str = "layout"
) -> Callable[[Predicate], Predicate]:
    """A decorator that adds a rule; the function gives the values of the message where the rule is broken."""

    def add(broken: Predicate) -> Predicate:
        into.append(Limit(id=f"megatron.{id}", words=words, noticed=noticed, broken=broken, path=path))
        return broken

    return add


def values_if(broken: object, **values: object) -> Values | None:
    """The values where the condition holds."""
    return values if broken else None


def attention_of(case: Case) -> Attention:
    """Attention of the first layer; where Megatron-LM can run the model, all layers are alike but for the window."""
    return case.model.kinds[0].attention

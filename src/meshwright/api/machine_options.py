"""Options of the verbs that start ranks on this machine, and what they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from meshwright.api import numbers
from meshwright.api.fields import Field, one_of

if TYPE_CHECKING:
    from meshwright.api.fields import Values
    from meshwright.domain.model import Model
    from meshwright.engine.request import Backend

_MODEL, _RUN = "Model", "Run"
LAYERS = Field(name="layers", parse=numbers.count, metavar="N", panel=_MODEL, help="Shrink the model to N layers.")
HIDDEN = Field(name="hidden", parse=numbers.count, metavar="N", panel=_MODEL,
               help="Shrink its widths and heads in proportion to this hidden width.")
EXPERTS = Field(name="experts", parse=numbers.count, metavar="N", panel=_MODEL, help="Shrink its mixtures to N experts.")
VOCABULARY = Field(name="vocabulary", parse=numbers.count, metavar="N", panel=_MODEL, help="Shrink its vocabulary to N words.")
SHRINK = (LAYERS, HIDDEN, EXPERTS, VOCABULARY)
BACKEND = Field(name="backend", parse=one_of("cpu", "cuda"), metavar="cpu|cuda", panel=_RUN,
                help="Processors with gloo, or accelerators with NCCL [default: cpu].")
COMPILE = Field(name="compile", kind="flag", panel=_RUN, help="Layers go through torch.compile.")


def small_model(values: Values) -> Model:
    """The model that the options name, cut down as they say."""
    from meshwright.catalog import load_model
    from meshwright.engine.smaller import smaller

    return smaller(
        load_model(values["model"]), **{name: values.get(name) for name in ("layers", "hidden", "experts", "vocabulary")}
    )


def backend(values: Values) -> Backend:
    """What the ranks compute on."""
    return cast("Backend", values.get("backend", "cpu"))

"""``pack``: samples of unequal length into micro-batches, what that gains, and which limit of tokens is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, ClassVar, cast, overload

from meshwright.api import numbers
from meshwright.api.door import refuse
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.options import CASE, HTML, LAYOUT
from meshwright.api.paged import paged
from meshwright.api.request import Answer, ModelOnCluster, Progress
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.api.packed import Packed
    from meshwright.packing import Cost

_SAMPLES, _PACKS, _OUTPUT = "Samples", "Micro-batches", "Output"
MODES = ("meshwright", "chatlearn", "verl", "slime", "slime-flops", "nemo-rl", "trl")
_TAKEN = {"model", "lengths", "max_tokens", "packs", "split_long", "global_batch", "sequence"}


class PackRequest(ModelOnCluster, frozen=True, kw_only=True):
    """Lengths, a limit and ranks; with a model on a cluster also what it gains in seconds and memory."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="lengths", kind="argument", metavar="LENGTHS",
              help="Lengths of samples: text, CSV, JSON lines or Parquet."),
        Field(name="distribution", metavar="SHAPE:NAME=VALUE,...", panel=_SAMPLES, in_file=False,
              help="Lengths that are drawn instead, as in lognormal:median=1500,sigma=0.8,max=8192,n=2048; also uniform, bimodal, "
                   "fixed."),
        Field(name="field", metavar="NAME", panel=_SAMPLES, in_file=False,
              help="The column or key that holds the length; of a list of tokens the number is taken."),
        Field(name="seed", parse=numbers.count_or_none, metavar="S", panel=_SAMPLES, in_file=False,
              help="Of the lengths that are drawn [default: 0]."),
        Field(name="global_batch", parse=numbers.count, metavar="N", panel=_SAMPLES,
              help="Samples of an optimizer step [default: all of them]."),
        Field(name="max_tokens", parse=numbers.sequence, metavar="TOKENS", panel=_PACKS,
              help="The most tokens of a micro-batch [default: the recommended limit]."),
        Field(name="data_parallel", parse=numbers.count, metavar="D", panel=_PACKS, in_file=False,
              help="Ranks that share the micro-batches [default: the layout's, or 1]."),
        Field(name="microbatches", parse=one_of("equal", "free"), metavar="equal|free", panel=_PACKS, in_file=False,
              help="Whether all ranks have as many, as pipelines and collectives need [default: equal]."),
        Field(name="align", parse=numbers.count, metavar="K", panel=_PACKS, in_file=False,
              help="Each sample takes a multiple of K tokens [default: 2 x tp x cp of the layout, or 1]."),
        Field(name="tokens_per_rank", parse=numbers.sequence, metavar="TOKENS", panel=_PACKS, in_file=False,
              help="Dynamic context parallelism: a longer sample is shared by 2, 4, ... ranks of DP x CP, so that none has more "
                   "of it; --data-parallel or the layout says how many there are."),
        Field(name="oversize", parse=one_of("error", "truncate", "alone"), metavar="error|truncate|alone", panel=_PACKS,
              in_file=False, help="A sample above the limit is refused, cut, or has a micro-batch of its own [default: error]."),
        Field(name="mode", parse=one_of(*MODES), metavar="|".join(MODES), panel=_PACKS, in_file=False,
              help="What another program would do with them, overflows included [default: meshwright]."),
        *(replace(each, kind="option", panel="Case", help="A model, whose cost decides what is even: with a cluster.")
          for each in CASE if each.name == "model"),
        *(each for each in CASE if each.name not in _TAKEN),
        LAYOUT,
        Field(name="out", metavar="FILE", panel=_OUTPUT, in_file=False, help="Write the micro-batches, one a line of JSON."),
        Field(name="picture", metavar="FILE", panel=_OUTPUT, in_file=False,
              help="Write tokens/s and memory against the limit as a picture (SVG), or as the page of --html by its name."),
        HTML,
        Field(name="force", kind="flag", panel=_OUTPUT, in_file=False, help="Overwrite changed files."),
    )

    lengths: Sequence[int] | str | Path | None = None
    """A file, or the lengths themselves."""
    distribution: str | None = None
    field: str | None = None
    seed: int | str | None = None
    global_batch: int | str | None = None
    max_tokens: int | str | None = None
    data_parallel: int | str | None = None
    microbatches: str | None = None
    align: int | str | None = None
    tokens_per_rank: int | str | None = None
    oversize: str | None = None
    mode: str | None = None
    framework: str | None = None
    layout: str | None = None
    out: str | Path | None = None
    picture: str | Path | None = None
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False

    def read(self, faults: Faults) -> Values:
        """What was said, parsed; lengths that are values stay what they are."""
        if self.lengths is None or isinstance(self.lengths, str | Path):
            return super().read(faults)
        return {**replace(self, lengths=None).read(faults), "lengths": self.lengths}


class PackAnswer(Answer, frozen=True, kw_only=True):
    """The micro-batches in figures, the limits that were looked at, and the files that were written."""

    packed: Packed
    saved: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a limit fits, where memory is known."""
        return self.packed.fits

    def to_json(self) -> dict[str, Any]:
        """The document of ``pack --json``."""
        from meshwright.api.views.pack import pack_view

        return {**pack_view(self.packed), "saved": list(self.saved)}


@overload
def pack(request: PackRequest, *, progress: Progress | None = None) -> PackAnswer: ...
@overload
def pack(
    request: Sequence[int] | NDArray[np.int64], max_tokens: int, data_parallel: int = 1, cost: Cost | None = None
) -> list[list[list[int]]]: ...
@paged
def pack(
    request: PackRequest | Sequence[int] | NDArray[np.int64], max_tokens: int | None = None, data_parallel: int = 1,
    cost: Cost | None = None, *, progress: Progress | None = None,
) -> PackAnswer | list[list[list[int]]]:
    """Pack the samples of a file. Bare lengths are answered by ``[rank][micro-batch][index]``, what a data loader needs.

    No micro-batch of those has more than ``max_tokens``; ``cost``: ``packing.Cost`` of a model, else all tokens cost the same.

    Errors:  ``InputError`` with every fault of the request, and for what cannot be packed.
    """
    if not isinstance(request, PackRequest):
        from meshwright.packing import pack as packed

        if isinstance(request, str | bytes | Mapping) or not hasattr(request, "__getitem__"):
            refuse("pack", request, "list of lengths")
        if max_tokens is None:
            raise fault("pack.limit-missing", "max_tokens is missing: the most tokens of a micro-batch")
        return packed(request, max_tokens, data_parallel, cost)
    return _answer(request)


def _answer(request: PackRequest) -> PackAnswer:
    """The samples, what they cost, the limits, and the micro-batches."""
    from meshwright.api.packed import Packed
    from meshwright.api.packed_case import layout_of, setup_of
    from meshwright.api.packed_curve import best, curve, filling, limits
    from meshwright.api.packed_dynamic import dynamic_step
    from meshwright.api.packed_gain import bounded, predicted
    from meshwright.api.packed_steps import Rules, keeping_any_limit, keeping_limit, looked_at, outcome, steps_of
    from meshwright.api.packs import Samples
    from meshwright.estimate.packing_cost import packing_cost
    from meshwright.outputs import obstacles
    from meshwright.packing import TOKENS, lower_bound
    from meshwright.packing.context import alignment

    faults = Faults()
    values = request.read(faults)
    faults.note(obstacles([str(values[name]) for name in ("out", "picture") if name in values], inputs=_inputs(values)))
    lengths = _lengths(values, faults)
    given, layout = setup_of(values, _held(lengths, values), values.get("align", 1), faults)
    faults.check()
    assert lengths is not None, "faults.check() raises where there are none"
    if given is not None and layout is None:
        layout = layout_of(given, values)
    asked = values.get("max_tokens")
    rules = Rules(
        max_tokens=asked or 1, data_parallel=values.get("data_parallel", 1 if layout is None else layout.data_parallel),
        cost=TOKENS if given is None or layout is None else packing_cost(given.case, layout),
        multiple=layout.pipeline_parallel if layout is not None and layout.virtual_stages > 1 else 1,
        equal=values.get("microbatches") != "free", oversize=values.get("oversize"), mode=values.get("mode", MODES[0]),
        align=values.get("align", 1 if layout is None else alignment(layout.tensor_parallel, layout.context_parallel)),
    )
    if asked is not None:
        rules.laid_out(lengths)
    steps, _ = steps_of(lengths, values.get("global_batch"))
    held = cast("NDArray[np.int64]", _held(steps[0], values))
    own = replace(rules, mode=MODES[0], equal=True, oversize=None)
    caps = limits(int(held.max()), rules.align, int(held.sum()) // rules.data_parallel, asked)
    points = curve(given, layout, held, own, caps) if given is not None and layout is not None else ()
    chosen = best(points)
    recommended = chosen.max_tokens if chosen is not None else caps[0] if points else filling(held, own, caps)
    rules = replace(rules, max_tokens=asked or recommended)
    here = next((each for each in points if each.max_tokens == rules.max_tokens), None)
    speedup = bounded(steps[0], rules)
    if given is not None and layout is not None and here is not None:
        speedup = predicted(given, layout, steps[0], rules, here)
    samples = Samples(lengths=lengths, documents=len(lengths), longest_tokens=int(lengths.max()))
    found = outcome(lengths, values.get("global_batch"), rules)
    exceeded = rules.mode != MODES[0] and found.total.overflows > 0
    packed = Packed(
        rules=rules, outcome=found, recommended=recommended, curve=points,
        keeping=keeping_limit(lengths, values.get("global_batch"), rules) if exceeded else None,
        keeping_any=keeping_any_limit(lengths, values.get("global_batch"), rules) if exceeded else None,
        given=given, layout=layout, speedup=speedup, lengths=samples,
        dynamic=dynamic_step(steps[0], values["tokens_per_rank"], rules, given, layout) if "tokens_per_rank" in values else None,
        lower_bound=sum(lower_bound(rules.laid_out(each), rules.max_tokens) for each in looked_at(steps)),
    )
    answer = PackAnswer(packed=packed, asked=request)
    return replace(answer, saved=tuple(_written(values, answer)))


def _lengths(values: Values, faults: Faults) -> NDArray[np.int64] | None:
    """The samples of a file, drawn ones, or those that Python has given."""
    import numpy as np

    from meshwright.api.lengths import read_lengths
    from meshwright.packing import prepared
    from meshwright.packing.drawn import distribution

    said = [name for name in ("lengths", "distribution") if name in values or name in faults.failed]
    if len(said) != 1:
        faults.add("pack.lengths", "LENGTHS or --distribution is missing: the lengths of the samples" if not said else
                   "LENGTHS and --distribution contradict each other: one of them")
        return None
    if "seed" in values and "lengths" in values:
        faults.add("pack.seed", "--seed needs --distribution: lengths of a file are not drawn")
    if "field" in values and not isinstance(values.get("lengths"), str):
        faults.add("pack.field", "--field needs a file: the column or key that holds its lengths")
    if "distribution" in values:
        with faults.at("distribution"):
            return distribution(values["distribution"]).draw(values.get("seed", 0))
    if "lengths" in values:
        with faults.at("lengths"):
            if isinstance(values["lengths"], str):
                return np.asarray(read_lengths(values["lengths"], values.get("field")), dtype=np.int64)
            return prepared(values["lengths"], 1, oversize="alone")
    return None


def _held(lengths: NDArray[np.int64] | None, values: Values) -> NDArray[np.int64] | None:
    """Lengths as memory has to hold them: cut where they are to be."""
    cut = values.get("max_tokens") if values.get("oversize") == "truncate" or values.get("mode") == "trl" else None
    return lengths if lengths is None or cut is None else lengths.clip(max=cut)


def _inputs(values: Values) -> list[str]:
    """Files that are read."""
    names = ("lengths", "model", "request", "cluster", "calibration")
    return [values[name] for name in names if isinstance(values.get(name), str)]


def _written(values: Values, answer: PackAnswer) -> list[str]:
    """The micro-batches, and the picture or the page, where they are asked for."""
    from meshwright.api.packed_steps import pack_lines
    from meshwright.api.renderers import render
    from meshwright.api.views.pack import pack_view
    from meshwright.outputs import Output, write

    outputs: list[Output] = []
    packed = answer.packed
    with TemporaryFile() as spool:
        if "out" in values:
            for line in pack_lines(packed.lengths.lengths, values.get("global_batch"), packed.rules):
                spool.write(line.encode())
            outputs.append(Output(path=str(values["out"]), spool=spool))
        if "picture" in values:
            as_page = str(values["picture"]).lower().endswith((".html", ".htm"))
            text = render("answer.html", answer) if as_page else render("packing.svg", pack_view(packed))
            outputs.append(Output(path=str(values["picture"]), text=text))
        return write(outputs, force=values["force"], inputs=_inputs(values)) if outputs else []

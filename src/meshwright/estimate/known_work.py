"""What micro-batches of a case cost whatever is recomputed, computed once of each distinct mesh and micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from meshwright.estimate.costs import bare_work, treated, work_keys
from meshwright.estimate.tables import Table
from meshwright.perf.arrays import take

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.estimate.costs import BareWork, Settings, WorkCosts
    from meshwright.estimate.degrees import Degrees


class KnownWork:
    """Work of one case that was asked about before; layers that are asked for under other treatments are not computed again."""

    __slots__ = ("_places", "_tables")

    def __init__(self) -> None:
        self._tables: dict[Settings, Table[BareWork]] = {}
        self._places: dict[Settings, dict[tuple[float, ...], int]] = {}
        """Columns of the tables by what they read of degrees."""

    def costs(self, case: Case, settings: Settings, degrees: Degrees) -> WorkCosts:
        """All costs of one micro-batch: ``work_costs``.

        ``case``: always the same one, under the kernels of the settings.

        Shapes:  degrees are numbers, or columns of one length.
        Units:   s and bytes.
        Holds:   to the bit what ``work_costs`` says, whatever was asked before.
        Source:  ``estimate.costs``.
        """
        keys = work_keys(case, degrees)
        own = structs.replace(settings, schedule="", treatments=(), offload=False)
        places = self._places.setdefault(own, {})
        new = {key: at for at, key in enumerate(keys) if key not in places}
        if new:
            asked = take(degrees, np.array(list(new.values())))
            found = Table(bare_work(case, settings, asked), len(new))
            self._tables[own] = Table.joined([self._tables[own], found]) if places else found
            places.update(zip(new, range(len(places), len(places) + len(new)), strict=True))
        table, chosen = self._tables[own], [places[key] for key in keys]
        return treated(case, settings, table.take(np.array(chosen) if degrees.tensor_parallel.ndim else chosen[0]))

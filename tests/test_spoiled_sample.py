"""A sample of spoiled files of runs (``python -m benchmarks.spoiled_runs``): other seeds by MESHWRIGHT_FUZZ."""

import json

from benchmarks.spoiled_runs.__main__ import run
from tests.readers.log_texts import EXAMPLES
from tests.readers.test_figures import SMI, TESTS, TRACE
from tests.readers.test_flight_recorder import dump
from tests.readers.traces.test_ascend import KERNELS, STEPS

from draws import FUZZ, draws

CASES = 20
TEXTS = {f"{name}-{index}": text.encode() for name, texts in EXAMPLES.items() for index, text in enumerate(texts)} | {
    "smi": SMI.encode(), "tests": TESTS.encode(), "trace": TRACE.encode(), "dump_rank_1": json.dumps(dump(1)).encode(),
    "kernels": KERNELS.format(ratio="aic_mac_ratio").encode(), "steps": STEPS.encode(),
}


def test_whatever_became_of_the_files_the_answer_is_sound():
    found = [each for each in run(range(draws(CASES)), 7 + FUZZ, TEXTS) if each.faults]
    assert not found, "\n".join(f"{each.what}: {', '.join(each.faults)}" for each in found)

"""``python -m meshwright.engine.dry_run_worker``: jobs as JSON on standard input, what they find as the last line of output."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import redirect_stdout

from meshwright.engine.dry_run import CONVERTER, Found, Job
from meshwright.engine.worker import end_with_parent
from meshwright.errors import InputError


def main() -> int:
    """Run every job; a fault of the input is an answer, too."""
    end_with_parent()
    from meshwright.engine.dry_run_step import dry_step

    jobs = CONVERTER.structure(json.load(sys.stdin), list[Job])
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [dry_step(job) for job in jobs]
        except InputError as error:
            answer: object = {"fault": {"id": error.messages[0].id, "text": "; ".join(map(str, error.messages))}}
        else:
            answer = {"found": [CONVERTER.unstructure(each, Found) for each in found]}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())

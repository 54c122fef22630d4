"""Which folder an unfinished change is undone from."""

from pathlib import Path

import pytest

from meshwright.outputs.journal import JOURNAL, home_of, make_stage
from meshwright.outputs.stage import stage_of


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(("journal", "stage"), [(True, True), (False, True), (True, False)])
def test_a_home_has_a_stage_of_this_user_with_a_journal(tmp_path, elsewhere, journal, stage):
    home = tmp_path / "home"
    folder = tmp_path / "folder" if elsewhere else home
    for each in {home, folder}:
        each.mkdir()
        make_stage(str(each), str(home))
    own = Path(stage_of(str(home)))
    if journal:
        (own / JOURNAL).write_text("{}")
    if not stage:  # a link is nobody's own folder
        own.rename(tmp_path / "theirs")
        own.symlink_to(tmp_path / "theirs")
    assert home_of(str(folder)) == (str(home) if journal and stage else None)

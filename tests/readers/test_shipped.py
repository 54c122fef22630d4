"""Long lists of the package are read at each start: without what is done against hostile ones, and from their JSON."""

from pathlib import Path

import pytest

from meshwright.readers.deriving import derived, files
from meshwright.readers.safe_yaml import load_yaml
from meshwright.readers.shipped import derived_path, load_shipped
from meshwright.readers.shipped_yaml import parsed

FILES = sorted(files())


def test_files_of_the_package_are_what_a_strict_reader_makes_of_them() -> None:
    assert len(FILES) > 30
    assert all(repr(load_shipped(path)) == repr(load_yaml(path)) == repr(parsed(path.read_bytes())) for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_their_json_is_current(path: Path) -> None:
    stands = derived_path(path).read_text(encoding="utf-8")
    assert stands == derived(path.read_bytes()), "python -m meshwright.readers.deriving writes it"


def test_no_json_is_left_of_a_file_that_is_gone() -> None:
    folders = {derived_path(path).parent for path in FILES}
    assert {each for folder in folders for each in folder.iterdir()} == {derived_path(path) for path in FILES}


@pytest.mark.parametrize("known", [b"a: 1", None])
def test_what_is_not_of_the_bytes_is_not_believed(tmp_path: Path, known: bytes | None) -> None:
    path = tmp_path / "facts.yaml"
    if known is not None:
        derived_path(path).parent.mkdir()
        derived_path(path).write_text(derived(known), encoding="utf-8")
        path.write_bytes(known)
        assert load_shipped(path) == {"a": 1}
    path.write_bytes(b"a: 2")
    assert load_shipped(path) == {"a": 2}

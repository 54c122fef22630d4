"""Files are changed all together or not at all, and only where they are what was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.api.applying import apply
from meshwright.errors import InputError
from meshwright.frameworks import File


@pytest.fixture
def two(tmp_path):
    """Two files, their texts as read, and what they are to be."""
    texts = {str(tmp_path / name): f"{name} before\n" for name in ("one.sh", "two.yaml")}
    for path, text in texts.items():
        Path(path).write_text(text)
    return texts, [File(path=path, text=text.replace("before", "after")) for path, text in texts.items()]


def contents(texts):
    return [Path(path).read_text() for path in texts]


def leftovers(texts):
    return [path for path in Path(next(iter(texts))).parent.iterdir() if str(path) not in texts]


def test_all_are_changed_and_nothing_is_left_beside_them(two):
    texts, files = two
    Path(files[0].path).chmod(0o750)
    assert apply(files, texts) == list(texts)
    assert contents(texts) == [file.text for file in files]
    assert Path(files[0].path).stat().st_mode & 0o777 == 0o750
    assert leftovers(texts) == []


def test_a_file_that_changed_meanwhile_stops_all(two):
    texts, files = two
    Path(files[1].path).write_text("somebody else was here\n")
    with pytest.raises(InputError, match="has changed since it was read"):
        apply(files, texts)
    assert contents(texts) == ["one.sh before\n", "somebody else was here\n"]
    assert leftovers(texts) == []


@pytest.mark.parametrize("mode", [0o444, 0o555])
def test_a_read_only_file_stops_all(two, mode):
    texts, files = two
    Path(files[1].path).chmod(mode)
    with pytest.raises(InputError, match="read-only"):
        apply(files, texts)
    assert contents(texts) == list(texts.values())


def test_a_file_that_is_gone_stops_all(two):
    texts, files = two
    Path(files[1].path).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        apply(files, texts)
    assert Path(files[0].path).read_text() == "one.sh before\n"


def test_what_was_changed_before_a_failure_is_put_back(two, monkeypatch):
    texts, files = two
    replace = Path.replace

    def full(self, target):
        if str(target).endswith("two.yaml"):
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        apply(files, texts)
    assert contents(texts) == list(texts.values())
    assert leftovers(texts) == []


def test_a_mark_in_front_stays(two):
    texts, files = two
    path = Path(files[0].path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    apply(files, texts)
    assert path.read_bytes() == b"\xef\xbb\xbf" + files[0].text.encode()

"""Files that are broken, of another age, cut off, enormous or hostile: one finding each, and the rest goes on."""

from __future__ import annotations

import json
import os

import pytest

import meshwright as mw
from meshwright.cli import main
from meshwright.lint.run import Wanted, findings_of
from meshwright.lint.sarif import sarif

GOOD = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"


@pytest.mark.parametrize(("name", "text", "id"), [
    ("a.py", "def f(:\n", "read.python"),
    ("a.py", "print 'hello'\n", "read.python-2"),
    ("a.py", "try:\n    pass\nexcept ValueError, error:\n    pass\n", "read.python-2"),
    ("a.py", "x = {{ cookiecutter.name }} + 1 1\n", "read.template"),
    ("a.py", "{% if gpu %}\nimport torch\n{% endif %}\n", "read.template"),
    ("a.py", "x = 1\0\n", "read.python"),
    ("a.py", "x = " + "9" * 500 + "\n", "read.file"),
    ("a.py", "x = " + "(" * 3000 + ")" * 3000 + "\n", "read.python"),
    ("a.py", "x = " + "-" * 100000 + "1\n", "read.python"),
    ("a.ipynb", '{"cells": [{"cell_type": "code", "source": ["import to', "read.file"),
    ("a.ipynb", '{"nbformat": 4}', "read.file"),
    ("a.ipynb", "[]", "read.file"),
    ("a.json", '{"zero_optimization": {"stage": 2,', "read.file"),
    ("a.yaml", "context:\n  mode: [0\n", "read.file"),
    ("a.sh", "x\0y\n", "read.file"),
])
def test_a_file_that_cannot_be_read_is_one_finding_and_the_rest_goes_on(tmp_path, name, text, id):
    (tmp_path / name).write_text(text)
    (tmp_path / "z.py").write_text(GOOD)
    found = mw.lint(mw.LintRequest(paths=[tmp_path])).linted.findings
    assert [each.id for each in found] == [id, "debug.anomaly"]
    assert found[0].severity == ("error" if id == "read.python" else "warning")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a.py").write_bytes(b"# \xff\xfe\n")
    (tmp_path / "b.py").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    (tmp_path / "c.py").write_text("")
    found = mw.lint(mw.LintRequest(paths=[tmp_path], fix=True)).linted.findings
    assert [each.id for each in found] == ["read.file"]
    assert (tmp_path / "b.py").read_bytes() == b"\xef\xbb\xbf" + GOOD.replace("True", "False").replace("\n", "\r\n").encode()


def test_links_that_lead_back_and_files_of_no_kind(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "a.json").write_text("{broken")
    (tmp_path / "a.yaml").write_text("context of nothing: [\n")
    (tmp_path / "train.py").write_text(GOOD)
    assert [each.id for each in mw.lint(mw.LintRequest(paths=[tmp_path])).linted.findings] == ["debug.anomaly"]


def test_tests_within_a_folder_are_read_and_not_judged(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(GOOD)
    (tmp_path / "tests" / "test_b.py").write_text("def f(:\n")
    assert [each.id for each in mw.lint(mw.LintRequest(paths=[tmp_path])).linted.findings] == ["read.python"]
    assert len(mw.lint(mw.LintRequest(paths=[tmp_path / "tests" / "test_a.py"])).linted.findings) == 1, "what is named is meant"


def test_names_that_hide_something_stay_names(tmp_path, capfd):
    name = "a\x1b[31m\n\u202eevil\"}].py"
    (tmp_path / name).write_text("import torch\ntorch.autograd.set_detect_anomaly(  True,  '\x1b[2J\u202e')\n")
    (tmp_path / os.fsdecode(b"\xff.py")).write_text(GOOD)
    out = tmp_path / "out.sarif"
    for more in ((), ("--json",), ("--diff",), ("--sarif", str(out))):
        assert main(["lint", str(tmp_path), *more]) == 0
        said = capfd.readouterr()
        for hidden in ("\x1b", "\u202e", "\x07"):
            assert hidden not in said.out + said.err
    document = json.loads(out.read_text(encoding="ascii"))
    uris = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in document["runs"][0]["results"]]
    assert any(uri.endswith("a%1B%5B31m%0A%E2%80%AEevil%22%7D%5D.py") for uri in uris)
    assert any(uri.endswith("%FF.py") for uri in uris)
    for each in document["runs"][0]["results"]:
        assert not set(each["message"]["text"]) & {"\x1b", "\u202e", "\n"}


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": each} for each in cells], "nbformat": 4})


def test_a_notebook_is_one_program_in_cells():
    text = notebook(
        ["%matplotlib inline\n", "import torch\n", "!pip install torch\n", "x = !ls\n"], "def broken(:\n", "%%html\n<b>\n",
        "%%bash\nexport NCCL_DEBUG=INFO\n", "%%time\nx = 1\ntorch.autograd.set_detect_anomaly(True)\n",
    )
    found = findings_of(text, "a.ipynb", Wanted())
    assert [(each.id, each.cell, each.line) for each in found] == [
        ("read.python", 2, 1), ("environment.nccl-debug", 4, 2), ("debug.anomaly", 5, 3),
    ]
    assert not any(each.edits for each in found), "notebooks are not changed"
    assert found[2].place == "a.ipynb:cell 5:3:1"
    assert sarif(found)["runs"][0]["results"][2]["locations"][0]["logicalLocations"][0]["name"] == "cell 5"


def test_a_long_file_is_read_to_its_end():
    text = "import torch\n" + "x = 1\n" * 30_000 + "torch.autograd.set_detect_anomaly(True)\n"
    (found,) = findings_of(text, "a.py", Wanted())
    assert found.line == 30_002


def test_a_file_larger_than_anything_written_by_hand(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n" * 1_700_000)
    (found,) = mw.lint(mw.LintRequest(paths=[tmp_path])).linted.findings
    assert (found.id, "larger than" in found.message.words) == ("read.file", True)

"""The wheel has every file that the package reads, and works where nothing else of the repository is."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import meshwright as mw

ROOT = Path(__file__).parents[1]
SESSION = ROOT / "scripts" / "_wheel_session.py"
BUILD = ("-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
BARRED = "import runpy, sys; sys.path.insert(0, sys.argv[1]); sys.modules |= dict.fromkeys(sys.argv[2].split(',')); "
BARRED += "sys.argv = sys.argv[3:]; runpy.run_path(sys.argv[0], run_name='__main__')"
"""Runs a script with a folder first on the path and with modules that cannot be imported."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if find_spec("hatchling") is None and os.environ.get("CI") != "true":
        pytest.skip("hatchling is not installed")
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, *BUILD, "--wheel-dir", str(place), str(ROOT)], check=True, timeout=120)
    (found,) = place.glob("*.whl")
    return found


def needed(requirements, found: set[str]) -> set[str]:
    """The distributions that requirements name, with those that these need."""
    for one in map(Requirement, requirements or ()):
        name = canonicalize_name(one.name)
        if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(name)
            needed(requires(name), found)
    return found


def test_every_file_that_the_package_reads_is_in_the_wheel(wheel):
    package = ROOT / "src"
    wanted = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    wanted = {name for name in wanted if ".egg-info" not in name}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"meshwright-{mw.__version__}.dist-info/METADATA").decode()
    assert wanted <= names
    assert {"meshwright/py.typed", "meshwright/frameworks/templates/launch.sh.j2"} <= names
    assert f"meshwright-{mw.__version__}.dist-info/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {"meshwright", f"meshwright-{mw.__version__}.dist-info"}
    assert "License-Expression: Apache-2.0" in metadata


def test_the_wheel_works_with_the_core_dependencies_alone(wheel, tmp_path):
    """What is installed here beside them cannot be imported, and the sources of this checkout are not on the path."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    core = needed(Distribution.at(tmp_path / "site" / f"meshwright-{mw.__version__}.dist-info").requires, set())
    others = [name for name, homes in packages_distributions().items() if not core & {canonicalize_name(home) for home in homes}]
    assert "pytest" in others
    command = [sys.executable, "-I", "-c", BARRED, str(tmp_path / "site"), ",".join({*others, "torch"}), str(SESSION)]
    done = subprocess.run([*command, str(tmp_path / "run")], capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["version"] == mw.__version__
    assert said["home"].startswith(str(tmp_path / "site"))
    assert {"plan.yaml", "train.sh", "megatron@0.14/train.sh"} <= set(said["files"])


@pytest.mark.matrix
def test_the_wheel_works_in_an_empty_environment():
    done = subprocess.run([str(ROOT / "scripts" / "wheel-smoke")], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["version"] == mw.__version__

"""What is given to people: the sdist, and the wheel that is built from it, installed where there are no sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
#: Set by `make test-wheel`: everything that the wheel needs comes from the package index, into an environment that has
#: nothing else. Without it the environment is lent the dependencies of the one that runs the tests.
CLEAN = os.environ.get("JUPYTER_SALUS_TEST_CLEAN", "") not in ("", "0")
#: Set by `make test-lowest`: of everything that the wheel asks for, the oldest version that it allows.
LOWEST = os.environ.get("JUPYTER_SALUS_TEST_LOWEST", "") not in ("", "0")
BUILT = ROOT / "jupyter_salus" / "labextension" / "dist" / "static" / "style.js"
#: What a build leaves behind or fetches; an sdist takes the rest.
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "node_modules", "__pycache__", "_build", ".yarn", "lib", "*.so"
)


def run(*line: object, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command that must succeed; nothing of this run's Python comes along."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in line],
        cwd=cwd,
        env={**environment, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done


def _build(source: Path, target: str, folder: Path, **environ: str) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source, **environ)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources as they are now."""
    if not BUILT.exists():
        pytest.skip("the JupyterLab extension isn't built: make labextension")
    source = tmp_path_factory.mktemp("source") / "tree"
    shutil.copytree(ROOT, source, ignore=_LEFT_OUT)
    made = _build(source, "sdist", tmp_path_factory.mktemp("sdist"))
    shutil.rmtree(source)
    return made


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, on a machine without Node.js as far as the build can see; the sources are gone afterwards."""
    source = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (tree,) = source.iterdir()
    path = tmp_path_factory.mktemp("path")
    for tool in ("cc", "gcc", "as", "ld", "sh"):
        if (found := shutil.which(tool)) is not None:
            (path / tool).symlink_to(found)
    made = _build(tree, "wheel", tmp_path_factory.mktemp("wheel"), PATH=str(path))
    shutil.rmtree(source)
    return made


def _lowest(wheel: Path) -> Iterator[str]:
    """`name==version` for each lower bound in the wheel's metadata that holds without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    for line in metadata.splitlines():
        asked = line.removeprefix("Requires-Dist: ")
        bound = re.match(r"([\w.-]+).*>=([\w.]+)", asked.partition(";")[0])
        if asked != line and "extra ==" not in asked and bound is not None:
            yield f"{bound[1]}=={bound[2]}"


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel."""
    venv = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", *([] if CLEAN or LOWEST else ["--without-pip"]), venv)
    if CLEAN or LOWEST:
        constraints = venv / "constraints.txt"
        constraints.write_text("".join(f"{one}\n" for one in _lowest(wheel)) if LOWEST else "")
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        run(*pip, "install", "--quiet", "--constraint", constraints, wheel)
        return venv
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", venv / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
    # Behind what is installed here; files ending in .pth in there, an editable install's among them, aren't read.
    (packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return venv

"""What the build does beside copying files: the JupyterLab extension by npm, the guard by the C compiler.

Neither is a condition for an editable install: without Node or without a compiler the package works, and the build says
what it lacks. A wheel must carry the extension, since who installs it may have no Node; it carries the guard where the
building machine has a compiler, and is a wheel of that platform then.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
LABEXTENSION = "jupyter_salus/labextension"
NATIVE = "jupyter_salus/native"


def _say(text: str) -> None:
    print(f"jupyter_salus: {text}", file=sys.stderr, flush=True)


def _lacking(path: Path) -> str | None:
    """Why the extension can't be built here, or None."""
    if not (path / "package.json").exists():
        return f"there is no {path / 'package.json'}"
    if not (path / "src" / "index.ts").exists():
        return f"there are no sources in {path / 'src'}"
    if shutil.which("node") is None:
        return "Node.js isn't on the PATH (version 20.19 or later is needed)"
    return None


def _newest(*places: Path) -> float:
    found = [place for place in places if place.is_file()]
    found += [file for place in places if place.is_dir() for file in place.rglob("*") if file.is_file()]
    return max((file.stat().st_mtime for file in found), default=0.0)


def build_labextension(target_name: str, version: str, path: str = LABEXTENSION, **kwargs: Any) -> None:
    """Called by the jupyter-builder hook. Raises where a wheel or sdist would go without the extension."""
    from hatch_jupyter_builder import npm_builder

    folder = ROOT / path
    built = folder / "dist" / "static" / "style.js"
    sources = (folder / "src", folder / "style", folder / "schema", folder / "package.json")
    if built.exists() and _newest(*sources) <= built.stat().st_mtime:
        return
    why = _lacking(folder)
    try:
        if why is not None:
            raise RuntimeError(f"cannot build the JupyterLab extension: {why}")
        npm_builder(target_name, version, path=str(folder), **kwargs)
    except Exception as error:
        if version != "editable":
            raise
        state = "the one built before stays" if built.exists() else "the sidebar will be missing until it is built"
        _say(f"{error}; {state} (`make labextension` tries again)")


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the guard and adds to the wheel what only exists after a build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling after the jupyter-builder hook."""
        dist = ROOT / LABEXTENSION / "dist"
        if self.target_name == "wheel" and dist.exists():
            # Not in pyproject.toml: a missing folder named there would fail an editable install. Where the installed
            # extension is a link to this folder, an editable install has put its install.json into it.
            shared = build_data.setdefault("shared_data", {})
            for part in dist.iterdir():
                if part.name != "install.json":
                    shared[str(part)] = f"share/jupyter/labextensions/jupyter-salus/{part.name}"
        if self.target_name == "wheel" and self._build_guard():
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform_tag()}"

    def _build_guard(self) -> bool:
        """True if the guard's library is in the tree now. Never raises: a plain session needs none."""
        script = ROOT / NATIVE / "build.py"
        if not script.exists() or not sys.platform.startswith("linux"):
            return False
        try:
            spec = importlib.util.spec_from_file_location("jupyter_salus_native_build", script)
            if spec is None or spec.loader is None:
                raise ImportError(f"cannot load {script}")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            # A build asks several times, for metadata as well; the compiler is asked once.
            if not _is_built(ROOT / NATIVE / module.GUARD):
                module.build(ROOT / NATIVE, _say)
        except Exception as error:
            _say(f"the guard wasn't built ({error}); sessions will be plain: turns at boundaries only")
        return any((ROOT / NATIVE).glob("*.so"))


def _is_built(library: Path) -> bool:
    """Whether the library is there and newer than all that it is made of."""
    made_of = [*library.parent.rglob("*.[ch]"), *library.parent.rglob("*.def"), library.parent / "build.py"]
    return library.exists() and _newest(*made_of) <= library.stat().st_mtime


def _platform_tag() -> str:
    """The platform part of the wheel's name: what the build environment sets, else this machine's own."""
    platform = os.environ.get("_PYTHON_HOST_PLATFORM") or sysconfig.get_platform()
    return platform.replace("-", "_").replace(".", "_")

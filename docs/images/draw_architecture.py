"""Draws `architecture.svg` from what the package's parts import of one another: `python docs/images/draw_architecture.py`.

An arrow is an import. Everybody imports `errors`, so those arrows are left out, and those that follow from others: where A
imports B, B imports C and A imports C, the last has none. A part stands above all that it imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent.parent / "jupyter_salus"
FIGURE = Path(__file__).parent / "architecture.svg"
#: What each part is, in a few words; a part of the code that isn't here fails.
WORDS = {
    "package": ("jupyter_salus", "what is imported first"),
    "server": ("server", "REST, events, gauges"),
    "cli": ("cli", "jupyter salus …"),
    "hub": ("hub", "spawn hook, admins' page"),
    "manager": ("manager", "starts kernels"),
    "guest": ("guest", "inside kernels"),
    "daemon": ("backend/daemon", "the only loop and clock"),
    "backend": ("backend", "its command"),
    "simulate": ("simulate", "a virtual clock"),
    "core": ("backend/core", "pure: events → decisions"),
    "devices": ("backend/devices", "what is governed"),
    "protocol": ("protocol", "what they speak"),
    "native": ("native", "the guard, in C"),
    "testing": ("testing", "for others' tests"),
    "errors": ("errors", "codes and wording"),
}
BOX, GAP, STEP = (168, 46), 22, 104


def imports() -> dict[str, set[str]]:
    """Each part with the parts that it imports."""
    found: dict[str, set[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        place = file.relative_to(ROOT).parts
        if place[0] == "labextension":
            continue
        part = _part(("jupyter_salus", *place[:-1], file.stem))
        found.setdefault(part, set()).update(_imported(file, ("jupyter_salus", *place[:-1])) - {part})
    return found


def _imported(file: Path, package: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*module, one.name) for one in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(one.name.split(".")) for one in node.names]
        else:
            continue
        found.update(_part(name) for name in names if name[0] == "jupyter_salus")
    return found


def _part(name: tuple[str, ...]) -> str:
    """The part that a dotted name belongs to."""
    below = name[1:]
    if below[:1] == ("backend",):
        return below[1] if below[1:2] and below[1] in ("core", "devices", "daemon") else "backend"
    if below and (below[0] == "errors" or (ROOT / below[0]).is_dir()):
        return below[0]
    return "package"


def layers(edges: dict[str, set[str]]) -> list[list[str]]:
    """The parts in rows, the lowest first: each above all that it imports."""
    height: dict[str, int] = {}

    def of(part: str) -> int:
        if part not in height:
            height[part] = 1 + max((of(one) for one in edges.get(part, ())), default=-1)
        return height[part]

    rows: list[list[str]] = []
    for part in sorted(edges, key=lambda one: (of(one), list(WORDS).index(one))):
        while len(rows) <= of(part):
            rows.append([])
        rows[of(part)].append(part)
    return rows


def draw() -> str:
    """The figure."""
    edges = imports()
    rows = layers(edges)
    width = max(len(row) for row in rows) * (BOX[0] + GAP) + GAP
    height = len(rows) * STEP
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX[0] + GAP) + GAP) / 2
        for index, part in enumerate(row):
            places[part] = (left + index * (BOX[0] + GAP), height - (number + 1) * STEP + 28)
    return "\n".join([*_head(width, height), *_arrows(edges, places), *_boxes(places), "</svg>", ""])


def _head(width: float, height: float) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" role="img">'
    )
    yield "<title>The parts of jupyter_salus, and which imports which</title>"
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#666"/></marker></defs>'
    )
    yield f'<rect width="{width}" height="{height}" fill="#fff"/>'


def _arrows(edges: dict[str, set[str]], places: dict[str, tuple[float, float]]) -> Iterator[str]:
    for part in sorted(edges):
        below = edges[part] - {"errors"}
        for other in sorted(below - set().union(*(_all_below(edges, one) for one in below))):
            (x1, y1), (x2, y2) = places[part], places[other]
            start, end = (x1 + BOX[0] / 2, y1 + BOX[1]), (x2 + BOX[0] / 2, y2)
            bend = (start[1] + end[1]) / 2
            path = f"M{start[0]:g} {start[1]:g} C{start[0]:g} {bend:g} {end[0]:g} {bend:g} {end[0]:g} {end[1]:g}"
            yield f'<path d="{path}" fill="none" stroke="#666" stroke-width="1.2" marker-end="url(#head)"/>'


def _all_below(edges: dict[str, set[str]], part: str) -> set[str]:
    """What a part imports, and what those import."""
    direct = edges[part]
    return direct.union(*(_all_below(edges, one) for one in direct))


def _boxes(places: dict[str, tuple[float, float]]) -> Iterator[str]:
    for part, (x, y) in places.items():
        name, words = WORDS[part]
        middle = x + BOX[0] / 2
        yield f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="#eef3fb" stroke="#3b6ea5"/>'
        yield f'<text x="{middle:g}" y="{y + 20:g}" text-anchor="middle" font-size="14">{escape(name)}</text>'
        yield f'<text x="{middle:g}" y="{y + 36:g}" text-anchor="middle" font-size="11" fill="#555">{escape(words)}</text>'


if __name__ == "__main__":
    FIGURE.write_text(draw(), "utf-8")

"""Draws the rooms and their arrows from the import linter's contracts: `python -m docs.make_picture [--check]`.

The picture stands in docs/explanation/architecture.md between two comments.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PLACE = re.compile(r"(?<=<!-- rooms: made by `python -m docs.make_picture` -->\n).*?(?=<!-- end of rooms -->)", re.S)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when the page is written, or is current; 1 with --check when it is stale."""
    parser = argparse.ArgumentParser(prog="python -m docs.make_picture", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; tell whether the picture is stale")
    check = parser.parse_args(argv).check
    page = PAGE.read_text(encoding="utf-8")
    wanted = with_picture(page)
    if wanted == page:
        return 0
    if check:
        print("docs/explanation/architecture.md is stale: run `python -m docs.make_picture`.", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


def with_picture(page: str) -> str:
    """The page with the picture as it should be. Raises ValueError where it has no place for one."""
    made, count = PLACE.subn(lambda found: picture(layers()), page)
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for the picture, not one")
    return made


def layers() -> list[list[str]]:
    """The rooms from the highest layer to the lowest, as the contract `rooms` in pyproject.toml lists them."""
    with (ROOT / "pyproject.toml").open("rb") as opened:
        contracts = tomllib.load(opened)["tool"]["importlinter"]["contracts"]
    [rooms] = (each for each in contracts if each.get("id") == "rooms")
    return [[room.strip() for room in layer.split("|")] for layer in rooms["layers"]]


def picture(layers: Sequence[Sequence[str]]) -> str:
    """A flow chart in Mermaid: a box for each layer, and an arrow from each to the one that it may import."""
    lines = ["```mermaid", "flowchart TD"]
    for number, rooms in enumerate(layers):
        if len(rooms) == 1:
            lines.append(f'    L{number}["{rooms[0]}"]')
        else:
            lines.append(f'    subgraph L{number}[" "]')
            lines += [f'        L{number}R{place}["{room}"]' for place, room in enumerate(rooms)]
            lines.append("    end")
    lines += [f"    L{number} --> L{number + 1}" for number in range(len(layers) - 1)]
    return "\n".join([*lines, "```", ""])


if __name__ == "__main__":
    sys.exit(main())

"""Fixtures as a directory holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.validation import parsed, problem

OF_FIXTURES = ("tools", "scenarios", "lifecycle")  # the folders in which every file is one; elsewhere a file may be


@dataclass(frozen=True)
class Fixture:
    """One behaviour, as the published format describes it; or a file that fails to."""

    file: str  # below the directory
    test_id: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    fault: str = ""  # why it cannot be played
    of_a_harness: bool = False  # it is about an event of a harness, which no tool brings about


def load(directory: Path) -> Iterator[Fixture]:
    """The fixtures of the files below a directory, in the order of the files' names. What is meant to be a fixture
    and is none comes with its fault; schemas and other files without a test_id are passed over."""
    for path in sorted(path for path in directory.rglob("*.json") if path.is_file()):
        file = path.relative_to(directory).as_posix()
        try:
            content = parsed(path.read_bytes())
        except (OSError, ValueError) as error:
            yield Fixture(file, fault=f"is no JSON that can be read: {error}")
            continue
        items = content if isinstance(content, list) else [content]
        if path.parent.name in OF_FIXTURES or any("test_id" in item for item in items if isinstance(item, dict)):
            yield from (_fixture(file, item) for item in items)


def _fixture(file: str, item: Any) -> Fixture:
    given = item if isinstance(item, dict) else {}
    test_id = str(given.get("test_id", ""))
    steps = given.get("steps")
    if any("event" in step for step in (given, *(steps if isinstance(steps, list) else ())) if isinstance(step, dict)):
        return Fixture(file, test_id, of_a_harness=True)
    if fault := problem("fixture", item):
        return Fixture(file, test_id, fault=f"is no fixture, {fault}")
    return Fixture(file, test_id, item)

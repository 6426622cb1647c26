"""Copies of our own catalog to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nexus.planning.catalog.bundled import DIRECTORY


def copied(place: Path) -> Path:
    """A copy of our own catalog, whose bodies may be changed."""
    return Path(shutil.copytree(DIRECTORY, place))


def changed(catalog: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A catalog with another manifest, and the vocabulary's files that say the same."""
    file = catalog / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    for part, words in manifest.get("vocabulary", {}).items():
        name = part.replace("_", "-")
        (catalog / "vocabulary" / f"{name}.yml").write_text(yaml.safe_dump({part: words}))
    return catalog

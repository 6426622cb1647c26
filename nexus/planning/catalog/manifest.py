"""Write the bundled catalog's manifest.json from its files: `python -m nexus.planning.catalog.manifest [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nexus.planning.catalog import loader
from nexus.planning.catalog.bundled import DIRECTORY
from nexus.planning.catalog.loader import MANIFEST, Manifest, explained, hash_of

LAYOUT_VERSION, SCHEMA_VERSION = "0.2.0", "2.0"  # of the published layout


def made(root: Path) -> str:
    """Return the manifest of the catalog in a directory, as text. Raises CONFIG_ERROR for a file that the layout
    refuses."""
    content = {
        "agents": _entries(root, "agents"),
        "skills": _entries(root, "skills"),
        "vocabulary": {part: loader.read_yaml(root, name)[part] for part, name in loader.VOCABULARY.items()},
    }
    version = {
        "nexus_core_version": LAYOUT_VERSION,
        # A published catalog contains its commit. Ours has no repository of its own: its content identifies it.
        "nexus_core_commit": hash_of(json.dumps(content, sort_keys=True).encode())[-40:],
        "schema_contract_version": SCHEMA_VERSION,
    }
    text = json.dumps(version | content, indent=2, ensure_ascii=False) + "\n"
    try:
        Manifest.model_validate_json(text)
    except ValidationError as error:
        loader.refuse(root, explained(error))
    return text


def _entries(root: Path, kind: str) -> list[dict[str, Any]]:
    folders = sorted(folder.name for folder in (root / kind).iterdir())
    return [
        {
            **loader.read_yaml(root, f"{kind}/{folder}/meta.yml"),
            "body_hash": hash_of(loader.read(root, f"{kind}/{folder}/body.md")),
        }
        for folder in folders
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 when the manifest is written, or is current; 1 with --check when it is stale."""
    parser = argparse.ArgumentParser(prog="python -m nexus.planning.catalog.manifest", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; tell whether the manifest is stale")
    check = parser.parse_args(argv).check
    file, text = DIRECTORY / MANIFEST, made(DIRECTORY)
    current = file.is_file() and file.read_text("utf-8") == text
    if check and not current:
        print("The manifest is stale: run `python -m nexus.planning.catalog.manifest`.", file=sys.stderr)
    elif not current:
        file.write_text(text, encoding="utf-8")
    return 1 if check and not current else 0


if __name__ == "__main__":
    sys.exit(main())

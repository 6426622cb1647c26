"""Reading a catalog's directory: nothing outside of it, nothing that is too large, nothing that YAML would make up."""

from __future__ import annotations

import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from nexus.core.operations.errors import Code, NexusError

LARGEST_MANIFEST = 2**20  # bytes
LARGEST_FILE = 2**18  # bytes of any other
VOCABULARY = {  # the parts of the vocabulary, and the files that they stand in
    "capabilities": "vocabulary/capabilities.yml",
    "categories": "vocabulary/categories.yml",
    "resume_tiers": "vocabulary/resume-tiers.yml",
    "tags": "vocabulary/tags.yml",
}


def refuse(file: Path, why: str) -> NoReturn:
    """Raises CONFIG_ERROR, naming the file and its fault."""
    raise NexusError(Code.CONFIG_ERROR, f"{file} {why}.", {"file": str(file)})


def read(root: Path, name: str, limit: int = LARGEST_FILE) -> bytes:
    """The content of a regular file below `root`, which is resolved. Raises CONFIG_ERROR."""
    file = root / name
    try:
        place = file.resolve(strict=True)
        if not place.is_relative_to(root):
            refuse(file, "leads out of the catalog")
        if not stat.S_ISREG(place.stat().st_mode):  # a pipe would keep us waiting
            refuse(file, "is no file")
        with place.open("rb") as opened:
            content = opened.read(limit + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        refuse(file, f"cannot be read ({type(error).__name__})")
    if len(content) > limit:
        refuse(file, f"has more than {limit} bytes")
    return content


def read_text(root: Path, name: str) -> str:
    """The same as text. Raises CONFIG_ERROR."""
    try:
        return read(root, name).decode("utf-8")
    except UnicodeDecodeError:
        refuse(root / name, "is not UTF-8")


def read_yaml(root: Path, name: str) -> Any:
    """The same as YAML: plain values, no aliases, every key once. Raises CONFIG_ERROR."""
    text = read_text(root, name)
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except _Refused as problem:
        refuse(root / name, str(problem))
    except (yaml.YAMLError, ValueError, RecursionError):
        refuse(root / name, "is not well-formed YAML")


class _Refused(Exception):
    """What YAML has and the layout does not."""


class _Loader(yaml.SafeLoader):
    """Refuses aliases, a few of which say a billion things, and keys of which only the last would count."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _Refused("has an alias, which the layout does not")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise _Refused("has a key twice")
        return mapping

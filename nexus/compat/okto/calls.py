"""The arguments of okto-nexus's clients in the words of our operations: old ids, and parameters of other names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coordination.services import workspaces
from nexus.compat.models import ImportedId
from nexus.compat.okto import answers
from nexus.core.operations.registry import Operation

# Ids of okto-nexus are random (a UUID of version 4), ours are not.
OLD_ID = re.compile("(?:msg|hof|art|chan)_[0-9a-f]{12}4[0-9a-f]{19}")
MOST = 1000  # ids of one list that are looked up

# Whom a call is for, where ours need not know.
UNUSED = {"workspace_list": "agent_id", "shared_md_render": "agent_id"}


def concerns(operation: Operation[Any], given: Mapping[str, Any]) -> bool:
    """Return whether arguments hold anything that only clients of okto-nexus say."""
    fields = operation.params.model_fields
    return any(name not in fields or _old_ids(name, value) for name, value in given.items())


def translate(operation: Operation[Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments in our words; what is unknown in both stays, and is refused."""
    fields, said = operation.params.model_fields, dict(given)
    for name in answers.LESS.get(operation.name, ()):
        if name in said:
            answers.check(name, said.pop(name))
    if (unused := UNUSED.get(operation.name)) is not None and unused not in fields:
        said.pop(unused, None)
    if isinstance(said.get("workspace_id"), str) and "workspace_id" not in fields and "project_root" in fields:
        root = workspaces.require(said.pop("workspace_id")).root_realpath
        if said.setdefault("project_root", root) != root:
            raise workspaces.mismatch("project_root", str(said["project_root"]))
    if "verify_by" in said and "verifier" in fields:
        said["verifier"] = _verifier(said.pop("verify_by"))
    # What is no parameter is refused later; a call could name any number of such lists.
    old = {each for name, value in said.items() if name in fields for each in _old_ids(name, value)}
    known = dict(ImportedId.objects.filter(pk__in=old).values_list("old_id", "new_id")) if old else {}
    return {name: _replaced(value, known) if _old_ids(name, value) else value for name, value in said.items()}


def our_id(given: str) -> str:
    """Return our id of a row that was imported under another one; any other text as it is."""
    if not OLD_ID.fullmatch(given):
        return given
    found = ImportedId.objects.filter(pk=given).values_list("new_id", flat=True).first()
    return given if found is None else found


def _old_ids(name: str, value: Any) -> list[str]:
    several = value if isinstance(value, list) and len(value) <= MOST else [value] if name.endswith("_id") else []
    return [each for each in several if isinstance(each, str) and OLD_ID.fullmatch(each)]


def _replaced(value: Any, known: Mapping[str, str]) -> Any:
    return [_replaced(each, known) for each in value] if isinstance(value, list) else known.get(value, value)


def _verifier(verify_by: Any) -> Any:
    """Return who verifies, as we write it; what we do not have stays, and is refused."""
    match verify_by:
        case {"kind": "creator", **rest} if not rest:
            return "creator"
        case {"kind": "agent", "agent_id": agent_id, **rest} if not rest:
            return {"agent_id": agent_id}
        case {"kind": "capability", "capability": capability, **rest} if not rest:
            return {"capability": capability}
    return verify_by

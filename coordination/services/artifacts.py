"""Artifacts: results of agents, inline or as a path in the workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.models import Artifact, ArtifactType, Stream
from coordination.paths import resolve_inside
from coordination.services import retries, workspaces
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid, not_found
from nexus.core.operations.validation import refuse_constant
from nexus.core.size_limits import json_within_limit, within_limit

CONTENT = ("artifact_type", "name", "path", "content", "metadata")  # the parameters of a call
CONTENT_TYPES = {
    ArtifactType.FILE: "application/octet-stream",
    ArtifactType.TEXT: "text/plain",
    ArtifactType.JSON: "application/json",
    ArtifactType.MARKDOWN: "text/markdown",
}


def put(
    *,
    project_root: str,
    artifact_type: str,
    name: str | None,
    path: str | None,
    content: str | None,
    metadata: Any,
    actor: str | None,
    measure: bool = True,
    client_id: str | None = None,
) -> tuple[Artifact, bool]:
    """Register an artifact, and return it with whether it is new. The file at a path need not exist yet; its size is 0
    then.

    `measure` says whether the caller may learn the size of the file at `path`; without it, the size is 0. An
    artifact that the actor put into the workspace with the same client_id before is returned as it is; all callers
    without an actor count as one. Raises VALIDATION_ERROR, CONTENT_TOO_LARGE (before JSON is parsed),
    WORKSPACE_UNRESOLVED, PATH_OUTSIDE_WORKSPACE.
    """
    kind = artifact_type.strip().lower()
    if kind not in ArtifactType.values:
        raise invalid(f"artifact_type must be one of {', '.join(ArtifactType.values)}.", field="artifact_type")
    if content is None and path is None:
        raise invalid("Pass content or path.", field="content")
    within_limit(content, "content")
    json_within_limit(metadata, "metadata")
    if kind == ArtifactType.JSON and content is not None:
        _require_json(content)
    directory, moment = workspaces.locate(project_root), now()
    file = resolve_inside(directory.root, path) if path is not None else None
    with write(directory.workspace_id):
        artifact = Artifact(
            artifact_id=new_id("art"),
            workspace_id=directory.workspace_id,
            artifact_type=kind,
            name=name,
            path=path,
            content=content,
            metadata=metadata,
            size_bytes=(_file_size(file) if measure else 0) if content is None else len(content.encode()),
            content_type=CONTENT_TYPES[ArtifactType(kind)],
            created_by=actor,
            client_id=client_id,
            created_at=moment,
        )
        if first := retries.made_before(artifact, maker=("workspace_id", "created_by"), same=CONTENT):
            return first, False
        workspaces.ensure(directory, moment)
        artifact.save(force_insert=True)
        emit(
            workspace_id=directory.workspace_id,
            stream=Stream.WORKSPACE,
            type="artifact.created",
            actor=actor,
            payload={
                "artifact_id": artifact.artifact_id,
                "artifact_type": kind,
                "name": name,
                "stored": artifact.stored,
                "size_bytes": artifact.size_bytes,
            },
            moment=moment,
        )
    return artifact, True


def get(*, project_root: str, artifact_id: str) -> Artifact:
    """Return one artifact of the workspace. Raises NOT_FOUND for an id unknown here."""
    directory = workspaces.locate(project_root)
    artifact = Artifact.objects.filter(workspace_id=directory.workspace_id, pk=artifact_id).first()
    if artifact is None:
        raise not_found("artifact", artifact_id)
    return artifact


def find_artifact(*, artifact_id: str) -> Artifact:
    """Return one artifact of any workspace. Raises NOT_FOUND."""
    artifact = Artifact.objects.filter(pk=artifact_id).select_related("workspace").first()
    if artifact is None:
        raise not_found("artifact", artifact_id)
    return artifact


def newest(*, project_root: str | None, limit: int) -> list[Artifact]:
    """Return the newest artifacts of one project or of all. Raises WORKSPACE_UNRESOLVED."""
    rows = Artifact.objects.select_related("workspace").order_by("-artifact_id")  # ids rise with time
    if project_root is not None:
        rows = rows.filter(workspace_id=workspaces.locate(project_root).workspace_id)
    return list(rows[:limit])


def _require_json(content: str) -> None:
    try:
        json.loads(content, parse_constant=refuse_constant, parse_int=str)
    except (ValueError, RecursionError):
        raise invalid("content is not well-formed JSON.", field="content") from None


def _file_size(file: str | None) -> int:
    try:
        return Path(file).stat().st_size if file and Path(file).is_file() else 0
    except OSError:
        return 0

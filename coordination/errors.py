"""Error codes of the coordination app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class CoordinationCode(ErrorCode):
    """Errors of workspaces, streams, paths and derived files."""

    WORKSPACE_REQUIRED = "WORKSPACE_REQUIRED", 400, "The operation needs a workspace and none was given."
    WORKSPACE_UNRESOLVED = "WORKSPACE_UNRESOLVED", 400, "The path is not an existing directory."
    WORKSPACE_MISMATCH = "WORKSPACE_MISMATCH", 404, "The entity belongs to another workspace; check project_root."
    INVALID_STREAM = "INVALID_STREAM", 400, "There is no such stream; the message lists the streams."
    PATH_OUTSIDE_WORKSPACE = "PATH_OUTSIDE_WORKSPACE", 400, "The path leads out of the project, perhaps by a link."
    QUOTA_EXCEEDED = (
        "QUOTA_EXCEEDED",
        429,
        "A limit that an operator set is reached, and nothing was done; details.retry_after_seconds tells when to try "
        "again, or is null if waiting does not help.",
    )
    RENDER_ERROR = "RENDER_ERROR", 500, "A derived file, such as shared.md, could not be written."

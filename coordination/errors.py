"""Error codes of the coordination app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode, NexusError


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
    STALE_CLAIM = (
        "STALE_CLAIM",
        409,
        "A later claim took the place of the one that claim_epoch names: stop working on it.",
    )
    TAG_IN_USE = "TAG_IN_USE", 409, "Agents have the tag: take it from them first."
    RENDER_ERROR = "RENDER_ERROR", 500, "A derived file, such as shared.md, could not be written."


def check_claim(given: int | None, latest: int, what: str) -> None:
    """Refuse a call of an agent whose claim is over, though it acts under the same id as who has it now.

    `given` is the epoch of the claim that the call names, if it names one. Raises STALE_CLAIM.
    """
    if given is not None and given != latest:
        raise NexusError(
            CoordinationCode.STALE_CLAIM,
            f"Claim {given} of this {what} is not its latest, which is {latest}: nothing was changed.",
            {"claim_epoch": latest},
        )

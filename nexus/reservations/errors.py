"""Error codes of the reservations app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class FilesCode(ErrorCode):
    """Errors of reservations."""

    FILES_RESERVED = (
        "FILES_RESERVED",
        409,
        "Another agent holds some of these files; details.refused says who, why and until when.",
    )

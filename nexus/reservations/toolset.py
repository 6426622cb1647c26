"""The toolset of reservations: agents reserve files so that no two edit the same."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import packaged


class FilesCode(ErrorCode):
    """Errors of reservations."""

    FILES_RESERVED = (
        "FILES_RESERVED",
        409,
        "Another agent holds some of these files; details.refused says who, why and until when.",
    )


FILES = Toolset(
    "files",
    "Reservations of files: paths and globs of a project that one agent edits, or several read, until a lease ends.",
    instructions=packaged("nexus.reservations", "instructions"),
    modules=(  # in the order in which agents see them; most agents need neither
        "nexus.reservations.operations",
        "nexus.reservations.administration",
    ),
)
operation = FILES.operation

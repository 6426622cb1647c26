"""What `nexus doctor` looks for: runners that no server could start with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nexus.control.runners.configuration import problem
from nexus.core.contributions import DoctorCheck, Finding


def _check(examination: Any) -> Iterator[Finding]:
    """The file that names the runners can be read."""
    if wrong := problem():
        yield Finding(wrong, "Mend the file; `nexus rpc runners` shows what it says then.")


CHECKS = (DoctorCheck("runners", _check),)

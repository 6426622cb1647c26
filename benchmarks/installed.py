"""What is timed from its start runs as an installed program does: with its modules compiled, whatever is set here."""

from __future__ import annotations

import os
from pathlib import Path


def compile_once(scratch: Path) -> None:
    """Processes started from here on keep what they compile in `scratch`; the first of a kind pays for it."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(scratch / "compiled")

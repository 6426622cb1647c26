"""Whether a file is, or would become, part of a git repository: what stands in it reaches everybody who clones it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PATIENCE_SECONDS = 10


def would_track(file: Path) -> bool:
    """Whether git tracks `file`, or would with the next `git add`: it lies in a repository that does not ignore it.

    Where git cannot be asked, the answer is yes: it is a key that is at stake.
    """
    if not any((place / ".git").exists() for place in file.parents):
        return False
    place = next(parent for parent in file.parents if parent.is_dir())
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ignored = subprocess.run(  # noqa: S603  # no shell, and the path stands after --
            ["git", "check-ignore", "--quiet", "--", str(file)],  # noqa: S607  # the git of the person's path
            cwd=place,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return True
    return ignored.returncode != 0  # a tracked file is not ignored, whatever the patterns say

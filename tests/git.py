"""git, as a person runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(place: str | Path, *arguments: str) -> str:
    """What git prints in a directory, having succeeded."""
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *arguments], cwd=place, check=True, capture_output=True, text=True)
    return done.stdout.strip()

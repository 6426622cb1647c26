"""Whether a file is, or would become, part of a git repository: what stands in it reaches everybody who clones it."""

from __future__ import annotations

from pathlib import Path

from nexus.core.processes import CHUNK, environment, run

TIME_LIMIT_SECONDS = 10


def would_track(file: Path) -> bool:
    """Whether git tracks `file`, or would with the next `git add`: it lies in a repository that does not ignore it.

    Where git cannot be asked, the answer is yes: it is a key that is at stake.
    """
    if not any((place / ".git").exists() for place in file.parents):
        return False
    place = next(parent for parent in file.parents if parent.is_dir())
    command = ["git", "check-ignore", "--quiet", "--", str(file)]
    try:
        ignored = run(command, cwd=str(place), env=environment("HOME"), seconds=TIME_LIMIT_SECONDS, largest=CHUNK)
    except OSError:  # a TimeoutError among them
        return True
    return ignored.code != 0  # a tracked file is not ignored, whatever the patterns say

"""Whether a file is, or would become, part of a git repository, where everybody who clones it can read it."""

from __future__ import annotations

from pathlib import Path

from nexus.core.processes import CHUNK, environment, run

TIME_LIMIT_SECONDS = 10


def would_track(file: Path) -> bool:
    """Return whether git tracks `file`, or would after the next `git add`: it is in a repository that does not ignore
    it.

    If git cannot be asked, the answer is yes, because a key is at stake.
    """
    if not any((directory / ".git").exists() for directory in file.parents):
        return False
    directory = next(parent for parent in file.parents if parent.is_dir())
    command = ["git", "check-ignore", "--quiet", "--", str(file)]
    try:
        ignored = run(command, cwd=str(directory), env=environment("HOME"), seconds=TIME_LIMIT_SECONDS, largest=CHUNK)
    except OSError:  # includes TimeoutError
        return True
    return ignored.code != 0  # a tracked file is not ignored, whatever the patterns say

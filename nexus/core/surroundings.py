"""What this process takes from the place where it was started: its streams, the user's home, its umask, and how it
reaches other machines. Every command settles that here, first. Standard library alone."""

from __future__ import annotations

import os
import sys

from nexus.core import outward

GIT_SETTINGS, GIT_SECONDS = r"^http\.(proxy|sslcainfo)$", 10


def settle() -> None:
    """Replace what is missing or of no use, for this process and those that it starts."""
    open_streams()
    os.umask(os.umask(0o077) & 0o077)  # a file of ours is for its owner to use, at least
    if not os.environ.get("HOME", "").startswith(os.sep):
        os.environ.pop("HOME", None)
        if not os.path.expanduser("~").startswith(os.sep):  # noqa: PTH111  # pathlib is slow to import
            os.environ["HOME"] = os.sep  # as containers have it for a user that the system does not know
    outward.settle()


def take_git_settings() -> None:
    """Use the operator's settings of git where no variable is set, in a process that reaches other machines."""
    from nexus.core.processes import CHUNK, NEUTRAL, environment, run  # a command starts without it

    command = ("git", "config", "--includes", "-z", "--get-regexp", GIT_SETTINGS)
    try:
        said = run(command, cwd=NEUTRAL, env=environment("HOME", "XDG_CONFIG_HOME"), seconds=GIT_SECONDS, largest=CHUNK)
    except OSError:  # git is missing, or hangs
        return
    settings = dict(each.partition("\n")[::2] for each in os.fsdecode(said.output).split("\0"))
    outward.take(settings.get("http.proxy"), settings.get("http.sslcainfo"))


def open_streams() -> None:
    """Open the null device for closed descriptors, which the next opened file would get; show what the terminal's
    encoding lacks as an escape."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        os.set_blocking(number, True)  # a client may have made it one that does not wait, for itself
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        elif number:
            getattr(sys, name).reconfigure(errors="backslashreplace")

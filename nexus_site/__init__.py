"""The Django project: its settings, and the start of its commands."""

import os
import sys


def _forget_working_directory() -> None:
    """Remove the working directory from the import path: an agent may write `nexus/` or `inbox/` there.

    `python -m` puts it first, and an empty entry of PYTHONPATH means it, too.
    """
    code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib is slow to import
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109
    except OSError:  # it was deleted
        return
    if here != os.path.realpath(code):
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]


_forget_working_directory()

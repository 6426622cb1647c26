"""The Django project: its settings, and the start of its commands."""

import os
import sys

CODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib is slow to import


def _import_our_own() -> None:
    """Search imports in this installation before PYTHONPATH and the program's directory, and never in the working
    directory: a project may have an `inbox/` or a `json.py` of its own, and an agent may write one.

    `python -m` puts the working directory first, and an empty entry of PYTHONPATH means it, too.
    """
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109
    except OSError:  # it was deleted
        here = None
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep) if not sys.flags.ignore_environment else []
    first = [] if sys.flags.safe_path else sys.path[:1]
    last = {os.path.realpath(entry) for entry in (*given, *first)} - {os.path.realpath(CODE)}
    entries = [(entry, os.path.realpath(entry)) for entry in sys.path]
    own = [entry for entry, real in entries if real not in (*last, here) or real == os.path.realpath(CODE)]
    others = [entry for entry, real in entries if real in last and real != here]
    sys.path[:] = [*own, *([] if CODE in own else [CODE]), *others]


_import_our_own()

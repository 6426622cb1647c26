"""The Django project: its settings, and the start of its commands."""

import os
import sys

CODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib is slow to import


def _import_our_own() -> None:
    """Search imports in this installation before PYTHONPATH and the program's directory, and never in the working
    directory: a project may have an `inbox/` or a `json.py` of its own, and an agent may write one.

    `python -m` puts the working directory first, and an empty entry of PYTHONPATH means it, too.
    """
    here = _real("")
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep) if not sys.flags.ignore_environment else []
    first = [] if sys.flags.safe_path else sys.path[:1]
    last = {_real(entry) for entry in (*given, *first)} - {_real(CODE)}
    entries = [(entry, _real(entry)) for entry in sys.path]
    own = [entry for entry, real in entries if real not in (*last, here) or real == _real(CODE)]
    others = [entry for entry, real in entries if real in last and real != here]
    sys.path[:] = [*own, *([] if CODE in own else [CODE]), *others]


def _real(entry: str) -> str:
    """Return where an entry of the import path leads; a relative one stays if the working directory was deleted."""
    try:
        return os.path.realpath(entry)
    except OSError:
        return entry


_import_our_own()

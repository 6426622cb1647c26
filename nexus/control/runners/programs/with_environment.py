"""Become a command with the variables that the caller chose: with_environment.py COMMAND…

The variables come in this program's own environment, each with PREFIX, so that no program before it uses them. On a
command line, everybody on the machine could read them.
"""

from __future__ import annotations

import os
import signal
import sys

PREFIX = "NEXUS_GIVEN_"
NOT_FOUND = 127


def main() -> None:
    command = sys.argv[1:]
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        os.environ[name.removeprefix(PREFIX)] = os.environ.pop(name)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()

"""Become a command that has the variables its caller chose: with_environment.py COMMAND…

They come in this program's own environment, each behind PREFIX, so that nothing before heeds them; on a command line,
everybody on the machine would read them.
"""

from __future__ import annotations

import os
import sys

PREFIX = "NEXUS_GIVEN_"
NOT_FOUND = 127


def main() -> None:
    command = sys.argv[1:]
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        os.environ[name.removeprefix(PREFIX)] = os.environ.pop(name)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()

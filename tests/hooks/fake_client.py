"""A coding client in a terminal, as far as `nexus attach` sees one: its input line, and what it is sent.

Its arguments are the file to which it appends what it reads, what its input line shows while it is empty, and what
stands below that.
"""

from __future__ import annotations

import os
import signal
import sys
import tty
from pathlib import Path

sent, empty, below = Path(sys.argv[1]), *sys.argv[2:]
tty.setraw(0)
signal.signal(signal.SIGCONT, lambda *_: tty.setraw(0))  # its shell has set the terminal to its own mode
text = ""
while True:
    shown = f"{empty[0]} {text}" if text else empty
    print(
        "\x1b[2J\x1b[H\x1b[?2004h",
        f"{shown}\n{below}".replace("\n", "\r\n"),
        "\x1b[H\x1b[2C",
        sep="",
        end="",
        flush=True,
    )
    keys = os.read(0, 4096).decode()
    with sent.open("a") as file:
        print(repr(keys), file=file)
    if not keys:
        break
    text += keys.replace("\x1b[200~", "").replace("\x1b[201~", "")
    if text.endswith(("\r", "\x15")):  # Enter, Ctrl-U
        text = ""

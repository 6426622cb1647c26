"""The published package of nexus-core, with the versions of what it stands on that its answers depend on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = ("@moreih29/nexus-core@0.21.0", "@modelcontextprotocol/sdk@1.32.2", "zod@4.6.7")
FOLDER = Path(os.environ.get("NEXUS_NEXUS_CORE") or Path(sys.prefix, "nexus-core"))
SERVER = FOLDER / "node_modules" / "@moreih29" / "nexus-core" / "dist" / "mcp" / "server.js"


def install() -> None:
    """Install it from npm, unless it is there. Raises CalledProcessError."""
    if not SERVER.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        print(f"Installing {PACKAGES[0]}.", flush=True)
        with tempfile.TemporaryDirectory() as cache:
            command = [
                "npm",
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                f"--prefix={FOLDER}",
                f"--cache={cache}",
            ]
            subprocess.run([*command, *PACKAGES], check=True)


if __name__ == "__main__":
    install()

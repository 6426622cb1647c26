"""Install the published agents of presets.toml from npm, each at the version that was tried last."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from nexus.control.runners_file import presets


def install(name: str, folder: Path) -> Path:
    """Install an agent, unless it is there, in a directory of its own, since programs share names; return its
    program."""
    preset = presets()[name]
    return installed(preset["package"], preset["tried"][-1], preset["command"][0], folder / name)


def installed(package: str, version: str, program_name: str, place: Path) -> Path:
    """Install a package at a version, below a path that ends with it, unless it is there; return its program."""
    place = place.with_name(f"{place.name}-{version}")
    program = place / "node_modules" / ".bin" / program_name
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        print(f"Installing {package} {version}.", flush=True)
        with tempfile.TemporaryDirectory() as cache:  # npm's own would keep a gigabyte
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"--prefix={place}", f"--cache={cache}"]
            subprocess.run([*command, f"{package}@{version}"], check=True)
    return program


if __name__ == "__main__":
    for name in presets():
        install(name, Path(sys.argv[1]))

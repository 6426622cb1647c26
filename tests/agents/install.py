"""Install the published agents of presets.toml from npm, each at the version that was tried last."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

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
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):  # tests of several files use one client
        if not program.exists():
            print(f"Installing {package} {version}.", flush=True)
            with tempfile.TemporaryDirectory() as cache:  # npm's own would keep a gigabyte
                command = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"--prefix={place}"]
                subprocess.run([*command, f"--cache={cache}", f"{package}@{version}"], check=True)
    return program


if __name__ == "__main__":
    for name in presets():
        install(name, Path(sys.argv[1]))

"""Install the published agents of presets.toml from npm, each at the version that was tried last: `make agents`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nexus.control.runners.configuration import presets


def main(folder: Path) -> None:
    """Install those that are not there yet, each in a directory of its own: their programs share names."""
    for name, preset in presets().items():
        version = preset["tried"][-1]
        place = folder / f"{name}-{version}"
        if (place / "node_modules" / ".bin" / preset["command"][0]).exists():
            continue
        place.mkdir(parents=True, exist_ok=True)
        print(f"Installing {preset['package']} {version}.", flush=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place)]
        subprocess.run([*command, f"{preset['package']}@{version}"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A team at work for minutes while processes are killed, the hub restarts, the disk fills and the clock moves.

python -m benchmarks.soak                     # ten minutes
python -m benchmarks.soak --seconds 60 --json
python -m benchmarks.soak --database-url postgresql://user@host/empty_database
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
SCRATCH = "NEXUS_SOAK_SCRATCH"  # tells the inner process that it is the one, and where its files are
HOME_MIB = 256
NAMESPACE = ("unshare", "--mount", "--map-root-user", "sh", "-c")
MOUNT = f'mount -t tmpfs -o size={HOME_MIB}m,mode=700 none "$0" && exec "$@"'


def soak(seconds: int, database_url: str | None = None) -> dict[str, Any]:
    """Run the soak and get its report; `violations` is empty when all went as promised.

    It runs in a mount namespace of its own with the home on a small file system, which is what a full disk takes.
    Where that is not allowed, the disk stays as it is and the report says so. With a database URL the store is there,
    on a disk that is the server's.
    """
    with tempfile.TemporaryDirectory(prefix="nexus-soak-") as name:
        scratch = Path(name).resolve()
        for directory in ("home", "project"):
            (scratch / directory).mkdir(mode=0o700)
        command: tuple[str, ...] = (sys.executable, "-m", "benchmarks.soak.run", str(seconds))
        if database_url is None and can_mount(scratch / "home"):
            command = (*NAMESPACE, MOUNT, str(scratch / "home"), *command)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
        if database_url is not None:
            environ["NEXUS_DATABASE_URL"] = database_url
        ended = subprocess.run(command, cwd=ROOT, env={**environ, SCRATCH: str(scratch)}, stdout=-1, text=True)
        if ended.returncode:
            raise RuntimeError(f"the soak itself failed with exit code {ended.returncode}")
        report: dict[str, Any] = json.loads(ended.stdout)
        return report


def can_mount(place: Path) -> bool:
    """Whether this user may mount a small file system in a namespace of its own."""
    probe = (*NAMESPACE, MOUNT, str(place), "true")
    return bool(shutil.which("unshare")) and subprocess.run(probe, capture_output=True).returncode == 0

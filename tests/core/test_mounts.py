"""A home on a network file system is recognised where Linux tells of it, and said to be one."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_bridge.relay import DIRECTORY, SOCKET
from nexus.core import files
from tests.acceptance.processes import environment

MOUNTED = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / {place} rw,relatime shared:5 master:2 - {kind} server:/export rw
31 22 0:41 / {place}/inner rw - tmpfs tmpfs rw
32 22 0:42 / {place}/with\\040space rw - cifs //server/share rw
33 22 0:43 / /covered rw - nfs server:/export rw
34 22 0:44 / /covered rw - ext4 /dev/sdb rw
"""
OVER_A_NETWORK = """
import sys
from pathlib import Path
from nexus.core import files
files.MOUNTS = Path(sys.argv[1])
from nexus_site.launch import main
main(["nexus", "runmcp"])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is on nfs, as far as is told."""
    told = tmp_path / "mountinfo"
    place = tmp_path.resolve() / "shared"
    place.mkdir()
    told.write_text(MOUNTED.format(place=place, kind="nfs4"))
    monkeypatch.setattr(files, "MOUNTS", told)
    return place


def test_it_knows_by_the_innermost_mount_what_a_path_is_on(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    for path, kind in (
        ("", "nfs4"),
        ("home", "nfs4"),
        ("inner/home", None),
        ("with space/home", "cifs"),
        ("../sharedness", None),
        ("../link/home", "nfs4"),
        ("/covered/home", None),
        ("/", None),
    ):
        assert files.network_kind(place / path) == kind, path
    files.MOUNTS.unlink()
    assert files.network_kind(place) is None, "the system does not tell"


def test_it_tells_network_file_systems_from_others(place: Path) -> None:
    for far, kinds in ((True, "nfs nfs4 cifs smb3 fuse.sshfs 9p"), (False, "ext4 overlay fuse.gvfsd")):
        for kind in kinds.split():
            files.MOUNTS.write_text(MOUNTED.format(place=place, kind=kind))
            assert files.network_kind(place) == (kind if far else None)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.sqlite
def test_a_process_warns_of_it_and_says_why_it_finds_no_hub(place: Path) -> None:
    (place / "home" / DIRECTORY).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:  # that of a hub on another machine
        left.bind(str(place / "home" / DIRECTORY / SOCKET))
    command = [sys.executable, "-c", OVER_A_NETWORK, str(files.MOUNTS)]
    ended = subprocess.run(command, env=environment(place / "home"), input="", capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    relay, warning = ended.stderr.splitlines()
    assert relay.startswith("[nexus] This process serves itself: nobody on this machine listens at the hub's socket.")
    assert "is on a network file system (nfs4)" in relay and "cannot be reached through it" in relay
    assert "nexus.db is on a network file system (nfs4)" in warning and "PostgreSQL" in warning

"""`nexus setup` as a newcomer runs it: a hub that runs, clients' own files, and nothing left after --undo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from nexus.core.instance import running
from nexus_site import background
from tests.acceptance.hub import ROOT, START_SECONDS

WRITTEN = ROOT / "tests" / "hooks" / "clients"
PYTHON = Path(sys.executable)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Path]:
    """The home directory of a person who used Codex and Claude Code; no hub of theirs outlives the test."""
    person = tmp_path / "person"
    (person / ".claude").mkdir(parents=True)
    (person / ".codex").mkdir()
    shutil.copy(WRITTEN / "codex.user.toml", person / ".codex" / "config.toml")
    shutil.copy(WRITTEN / "claude-code.user.json", person / ".claude.json")
    (person / "shop").mkdir()
    yield person
    background.stop(person / ".nexus")


def setup(person: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return nexus(person, "setup", *arguments)


def nexus(person: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_", "XDG_"))}
    environ = {**kept, "HOME": str(person), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [str(PYTHON.with_name("nexus")), *arguments],
        cwd=person / "shop",
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * START_SECONDS,
        check=False,
    )


def files(person: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in person.rglob("*") if one.is_file() and ".nexus" not in one.parts}


def test_a_newcomer_sets_up_and_takes_it_back(person: Path) -> None:
    before = files(person)
    assert "Pass --yes" in setup(person).stderr and files(person) == before
    done = setup(person, "--yes", "--port", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    hub = running(person / ".nexus")
    assert hub is not None and httpx.get(f"{hub.url}/healthz", timeout=START_SECONDS).status_code == 200
    assert "tools: coordination, files, questions" in done.stdout
    assert "nexus" in (person / "shop" / ".codex" / "config.toml").read_text()
    again = setup(person, "--yes")
    assert (again.returncode, "Nothing needs a change." in again.stdout) == (0, True)
    assert setup(person, "--check").returncode == 0
    assert (nexus(person, "stop").stdout, running(person / ".nexus")) == ("The hub ended.\n", None)
    done = nexus(person, "restart")
    other = running(person / ".nexus")
    assert other is not None and (other.port, other.pid == hub.pid) == (hub.port, False), done.stderr
    assert hub.url in done.stdout
    assert setup(person, "--undo", "--yes").returncode == 0
    assert nexus(person, "stop").stdout == "No hub runs.\n"
    assert "`nexus serve`" in nexus(person, "restart").stderr
    assert files(person) == before and running(person / ".nexus") is None
    assert setup(person, "--check").returncode == 4


def test_its_address_logs_in_once_where_agents_run_programs_and_the_login_outlives_a_restart(person: Path) -> None:
    (person / ".nexus").mkdir(mode=0o700)
    (person / ".nexus" / "runners.toml").write_text('[runners.mine]\nkind = "acp"\ncommand = ["true"]\n')
    done = setup(person, "--yes", "--port", "0", "--control", "--client", "codex")
    [address] = re.findall(r"http://\S+/login/\S+", done.stdout)
    with httpx.Client(follow_redirects=True, timeout=START_SECONDS) as browser:
        assert browser.get(address).url.path == "/admin/"
        assert httpx.get(address, follow_redirects=True, timeout=START_SECONDS).url.path == "/admin/login/"
        [token] = [file.read_text() for file in (person / ".nexus").glob("rpc-*.token")]
        assert "/login/" in nexus(person, "restart").stdout
        hub = running(person / ".nexus")
        assert hub is not None and browser.get(f"{hub.url}/admin/").url.path == "/admin/"
        assert (person / ".nexus" / f"rpc-{hub.port}.token").read_text() == token

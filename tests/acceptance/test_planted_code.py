"""Code that an agent, or anybody, put into a project: nothing of ours imports it, wherever it is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nexus.control.runners import sandbox
from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.pool import Pool, until
from tests.acceptance.processes import environment, nexus
from tests.acceptance.test_sandboxed_agent import AGENT, RUNNERS, said
from tests.conftest import Furnish
from tests.reservations.git import Repo

PACKAGES = ("nexus", "coordination", "inbox", "handoffs", "django", "mcp")
MODULE, PROGRAM = ["-m", "nexus_site"], [str(ROOT / "manage.py")]
MODULES = ("sitecustomize.py", "usercustomize.py", "json.py", "asyncio.py", "site.py")


def plant(project: Path, marker: Path) -> str:
    """A shell script that writes packages named as ours into a project; each says in `marker` that it was run."""
    files = [f"{package}/__init__.py" for package in PACKAGES] + list(MODULES)
    code = f"open({str(marker)!r}, 'a').write(__name__)"
    folders = " ".join(str(project / package) for package in PACKAGES)
    writes = [f"cat > {project / file} <<'END'\n{code}\nEND" for file in files]
    return "\n".join([f"mkdir -p {folders}", *writes])


def test_what_a_sandboxed_agent_writes_runs_nowhere_else(tmp_path: Path, furnish: Furnish) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    home, project, marker = furnish(tmp_path / "home"), tmp_path / "project", tmp_path / "ran"
    project.mkdir()
    (project / "plant.sh").write_text(plant(project, marker))
    words = {"python": sys.executable, "agent": str(AGENT), "root": str(ROOT)}
    runners = RUNNERS.format(**{name: json.dumps(word) for name, word in words.items()})
    serve = [sys.executable, str(ROOT / "manage.py"), "serve", "--port", "0", "--control"]
    pool = Pool(home, runners=runners, command=["env", "-C", str(project), *serve])
    try:
        pool.result("create_agent", agent_id="ann", model="coder", cwd=str(project), allowed_write_paths=["."])
        assert said(pool, "shell sh plant.sh").startswith("0 ")
        assert (project / "nexus" / "__init__.py").exists()
        assert "ann" in said(pool, "bus agent_whoami")
        first = pool.worker()
        first.kill()
        until(lambda: not first.is_running())
        assert said(pool, "hello") == "Hello", "the worker was started again"
    finally:
        pool.close()
    assert not marker.exists(), marker.read_text()


@pytest.mark.parametrize(
    ("program", "path"),
    [
        (MODULE, f":{ROOT}"),
        (MODULE, f"{ROOT}:."),
        (PROGRAM, f"{ROOT}:."),
        pytest.param(MODULE, str(ROOT), marks=pytest.mark.long),
        pytest.param(PROGRAM, str(ROOT), marks=pytest.mark.long),
        pytest.param(PROGRAM, f":{ROOT}", marks=pytest.mark.long),
    ],
)
def test_a_command_does_not_import_from_a_project(tmp_path: Path, program: list[str], path: str) -> None:
    marker, project = tmp_path / "ran", tmp_path / "project"
    for package in ("nexus", "coordination", "inbox"):
        (project / package).mkdir(parents=True)
        (project / package / "__init__.py").write_text(f"open({str(marker)!r}, 'a').write(__name__)")
    done = subprocess.run(
        [sys.executable, *program, "version"],
        cwd=project,
        env={**environment(tmp_path / "home"), "PYTHONPATH": path},
        input=b"",
        capture_output=True,
        timeout=START_SECONDS,
    )
    assert not marker.exists() and b"Traceback" not in done.stderr, done.stderr.decode()


def test_what_git_and_harnesses_start_in_a_project_does_not_import_from_it(tmp_path: Path, home: Path) -> None:
    marker, repo = tmp_path / "ran", Repo.make(tmp_path / "project")
    guarded = nexus(home, "guard", "install", "--repo", str(repo.top))
    assert guarded.returncode == 0, guarded.stderr
    subprocess.run(["sh", "-c", plant(repo.top, marker)], check=True, timeout=START_SECONDS)
    env = {name: value for name, value in environment(home).items() if name != "PYTHONPATH"}
    event = json.dumps({"hook_event_name": "SessionStart", "session_id": "s", "cwd": str(repo.top)}).encode()
    for words, given in ((["hook", "--agent-id", "ann"], event), (["runmcp"], b"")):
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words],
            cwd=repo.top,
            env=env,
            input=given,
            capture_output=True,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()
    (repo.top / "parser.py").write_text("new")
    repo.ok("add", "parser.py")
    repo.ok("commit", "-qm", "one", PYTHONPATH=".")
    assert not marker.exists(), marker.read_text()

"""The wheel: it holds our import names and nothing else, and works from another directory."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.acceptance.hub import ROOT, START_SECONDS

NAMES = {"nexus", "coordination", "inbox", "handoffs", "mcp_bridge", "nexus_site", "templates"}
INITIALIZE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
    '"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}\n'
)
WHAT_IT_IS_MADE_OF = (*sorted(NAMES), "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what git knows of, so that no file that only lies about gets in."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    archive = made / "source.tar"
    run("git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *WHAT_IT_IS_MADE_OF, output=made / "files")
    run("tar", "-cf", str(archive), "--null", "--files-from", str(made / "files"))
    run("tar", "-xf", str(archive), "-C", str(source))
    pip("wheel", "--no-build-isolation", "-w", str(made), str(source))
    [wheel] = made.glob("*.whl")
    return wheel


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", *arguments, "--no-deps", "--no-index")


def run(*command: str, output: Path | None = None, cwd: Path = ROOT, input: str = "", **environ: str) -> str:
    environ = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(cwd), **environ}
    done = subprocess.run(
        command, cwd=cwd, env=environ, input=input.encode(), capture_output=True, timeout=4 * START_SECONDS, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    if output:
        output.write_bytes(done.stdout)
    return done.stdout.decode()


def test_it_holds_our_import_names_and_every_file_of_theirs(wheel: Path) -> None:
    inside = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in inside} == NAMES
    known = set(run("git", "-c", f"safe.directory={ROOT}", "ls-files", *sorted(NAMES)).splitlines())
    assert known - inside == set()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an environment with the wheel."""
    place = tmp_path_factory.mktemp("installed")
    environment = place / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip("--python", str(python), "install", str(wheel))
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "others.pth").write_text(borrowed(place / "others"))
    return environment


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("agents create ann", "nxs_"),  # over a store that it makes first
        pytest.param("demo --rounds 1 --pause 0.02", "handoff.completed", marks=pytest.mark.long),
    ],
)
def test_it_works_from_another_directory(wheel: Path, installed: Path, tmp_path: Path, command: str, told: str) -> None:
    python = str(installed / "bin" / "python")
    where = run(python, "-P", "-c", "import nexus_site; print(nexus_site.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)
    more = "from nexus.core.installation import install_command; print(install_command('postgres'))"
    assert f"postgres,semantic,uvicorn] @ {wheel.as_uri()}'" in run(python, "-P", "-c", more, cwd=tmp_path)
    said = run(str(installed / "bin" / "nexus"), *command.split(), cwd=tmp_path)
    assert told in said


# Packages of ours, of a library of ours, and modules of Python's own.
SHADOWS = (*sorted(NAMES - {"nexus_site"}), "django", "channels", "json.py", "logging.py")


@pytest.mark.parametrize("place", ["PYTHONPATH", "the working directory"])
def test_a_project_with_packages_of_the_same_names_shadows_nothing(installed: Path, tmp_path: Path, place: str) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in SHADOWS:
        file = project / name if name.endswith(".py") else project / name / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise SystemExit('shadowed')")
    by_path = place == "PYTHONPATH"
    at: dict[str, Any] = {"cwd": elsewhere if by_path else project, "PYTHONPATH": str(project) if by_path else ""}
    nexus = str(installed / "bin" / "nexus")
    assert "nxs_" in run(nexus, "agents", "create", "ann", **at)
    assert '"serverInfo"' in run(nexus, "runmcp", input=INITIALIZE, **at)
    said = run(nexus, "hook", "--client", "claude-code", input='{"hook_event_name": "SessionStart"}', **at)
    assert "shadowed" not in said


def test_what_setup_writes_starts_whatever_python_is_told(installed: Path, tmp_path: Path) -> None:
    nexus = str(installed / "bin" / "nexus")
    shadow = tmp_path / "shadow" / "nexus_site"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise SystemExit('shadowed')")
    shown = run(nexus, "connect", "--client", "json", cwd=tmp_path)
    entry = json.loads(shown)["mcpServers"]["nexus"]
    variables: dict[str, Any] = {
        "PYTHONHOME": "/nowhere",
        "PYTHONPATH": str(shadow.parent),
        "PYTHONINSPECT": "1",
        "PYTHONOPTIMIZE": "2",
    }
    said = run(entry["command"], *entry["args"], cwd=tmp_path, input=INITIALIZE, **variables)
    assert '"serverInfo"' in said and "Nexus is where agents" in said


def borrowed(folder: Path) -> str:
    """A folder with links to the packages that this environment has, without its editable Nexus."""
    folder.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "nexus" not in each.name.lower() and each.suffix != ".pth":
            (folder / each.name).symlink_to(each)
    return str(folder)

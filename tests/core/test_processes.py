"""Every child process is started by nexus/core/processes.py, and none outlives what started it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import psutil
import pytest

from nexus.core import processes

ROOT = Path(__file__).parents[2]
STARTERS = {  # the module, and the programs that it starts by their file
    *("nexus/core/processes.py", "nexus/core/guardian.py"),
    *(
        f"nexus/control/runners/programs/{name}.py"
        for name in ("git_steps", "lfs_pointer", "sandbox_init", "with_environment")
    ),
    "nexus/hooks/waiter.py",
    "nexus/core/installation.py",  # starts nothing: it tells a person what to type
}
APART = {"tests", "benchmarks", "docs", "build"}  # not part of the product
MODULES = {"subprocess", "multiprocessing", "pty"}
CALLS = {
    *("system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "open_process"),
    *("run_process", "spawnProcess", "stdio_client"),
    *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe", "ProcessPoolExecutor"),
    *("spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe"),
}


class Limits(TypedDict, total=False):
    seconds: float
    largest: int
    input: bytes


LIMITS = Limits(seconds=60.0, largest=100_000)


def sources() -> Iterator[Path]:
    for file in ROOT.rglob("*.py"):
        top = file.relative_to(ROOT).parts[0]
        if top not in APART and not top.startswith("."):
            yield file


def starts(tree: ast.AST) -> Iterator[str]:
    """What of a module starts a process, or a module of ours with the working directory on its path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if (node.module or "").partition(".")[0] in MODULES:
                yield str(node.module)
            yield from names & CALLS
        elif isinstance(node, ast.Attribute) and node.attr in CALLS:
            yield node.attr
        elif isinstance(node, ast.List | ast.Tuple):
            words = [each.value if isinstance(each, ast.Constant) else each for each in node.elts]
            if "-m" in words and "sys.executable" in map(ast.unparse, node.elts[: words.index("-m")]):
                yield "python -m"
        elif isinstance(node, ast.Constant) and node.value == "-mnexus_site":
            yield "python -m"


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "from subprocess import Popen",
        "import os; os.execvp('git', ['git'])",
        "from os import fork",
        "import asyncio; asyncio.create_subprocess_exec('git')",
        "from multiprocessing.pool import Pool",
        "from mcp.client.stdio import stdio_client",
        "command = [sys.executable, '-m', 'nexus_site']",
    ],
)
def test_it_finds_what_starts_a_process(source: str) -> None:
    assert list(starts(ast.parse(source)))


def test_one_module_starts_every_process() -> None:
    found = {str(file.relative_to(ROOT)): set(starts(ast.parse(file.read_text()))) for file in sources()}
    assert {file: names for file, names in found.items() if names and file not in STARTERS} == {}


@pytest.mark.usefixtures("starts_processes")
def test_python_of_ours_does_not_import_from_the_working_directory(tmp_path: Path) -> None:
    for package in ("nexus", "coordination", "nexus_site"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('planted')")
    done = processes.run(
        processes.python("nexus_site", "version"), cwd=str(tmp_path), env=processes.own_environment(), **LIMITS
    )
    assert (done.code, done.errors) == (0, b"")


def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "GIT_DIR", "LD_PRELOAD", "SECRET", "NEXUS_HOME"):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    given = processes.environment("SECRET", MORE="more")
    assert given["SECRET"] == "planted" and given["MORE"] == "more"
    assert set(given) <= {*processes.BASICS, "SECRET", "MORE"}
    assert all(map(os.path.isabs, given["PATH"].split(os.pathsep)))
    ours = processes.own_environment()
    assert ours["PYTHONPATH"] == processes.CODE and ours["NEXUS_HOME"] == "planted"
    assert not {"PYTHONSTARTUP", "PYTHONHOME", "GIT_DIR", "LD_PRELOAD", "SECRET"} & set(ours)


def sh(script: str, **given: Unpack[Limits]) -> processes.Finished:
    limits: Limits = {**LIMITS, **given}
    return processes.run(["sh", "-c", script], cwd="/", env=processes.environment(), **limits)


@pytest.mark.usefixtures("starts_processes")
def test_it_answers_what_a_program_said() -> None:
    assert sh("cat; echo bad >&2; exit 3", input=b"x" * 90_000) == (3, b"x" * 90_000, b"bad\n", False)


@pytest.mark.usefixtures("starts_processes")
def test_a_program_has_no_descriptor_of_ours(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as opened:
        os.set_inheritable(opened.fileno(), True)
        assert str(tmp_path) not in sh("ls -l /proc/self/fd").output.decode()


@pytest.mark.usefixtures("starts_processes")
def test_it_reads_a_bounded_answer_and_kills_who_says_more() -> None:
    done = sh("yes & yes", largest=1_000)
    assert done.cut and len(done.output) == 1_000


@pytest.mark.usefixtures("starts_processes")
def test_it_kills_everything_after_its_time(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(TimeoutError):
        sh(f"echo $$ > {pids}; setsid sh -c 'echo $$ >> {pids}; exec sleep 600' & wait", seconds=3.0)
    assert not [pid for pid in pids.read_text().split() if psutil.pid_exists(int(pid))]


def test_it_says_that_a_program_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        processes.run(["no-such-program"], cwd="/", env=processes.environment(), **LIMITS)


PARENT = """
import sys
from nexus.core import processes
program = processes.start(["sh", "-c", "sleep 600 & echo $!; wait"], cwd="/", env=processes.environment(), stdout=-1)
print(program.stdout.readline().decode(), flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("starts_processes")
def test_a_program_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        child.wait(timeout=60)

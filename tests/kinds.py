"""What kind a test is, and the part of the suite that it belongs to.

A test's kind follows from the fixtures that it uses: `FIXTURES` is the one table. A test that starts a process, or
connects to a port, without a fixture that says so fails, so the quick part stays quick.

`--kind` plays kinds, or a part: `quick` is what `make test` plays, the kinds of `QUICK` and the tests of smoke.txt;
`rest` is all else. After a whole part the counts are compared with those of counts.toml.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import SERVER

HERE = Path(__file__).parent
# Of several kinds that a test's fixtures give it, the first counts. Other fixtures depend on these.
FIXTURES = {
    "published": "runs_published",
    "browser": "runs_browser",
    "postgres": "runs_postgres",
    "sandbox": "runs_sandbox",
    "hub": "starts_hubs",
    "git": "runs_git",
    "process": "starts_processes",
    "committed": "transactional_db",
}
IN_PROCESS = "in process"
KINDS = (*FIXTURES, IN_PROCESS)
QUICK = (IN_PROCESS, "committed")
SMOKE_LIMIT = 60
SLACK = 50  # a kind may have so many tests fewer, or processes more, than counts.toml says
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"}
FORK_SERVER = "/pymp-"  # in the path of a fork server's socket: who connects there starts a process (tests/warm.py)


@pytest.fixture(scope="session")
def runs_published() -> None:
    """Runs programs that others published: agents, peers, SDKs."""


@pytest.fixture(scope="session")
def runs_browser() -> None:
    """Drives a browser."""


@pytest.fixture(scope="session")
def runs_postgres() -> None:
    """Starts a PostgreSQL server of its own."""


@pytest.fixture(scope="session")
def runs_sandbox() -> None:
    """Runs programs in a sandbox."""


@pytest.fixture(scope="session")
def starts_hubs() -> None:
    """Starts hubs, or agents beside them."""


@pytest.fixture(scope="session")
def runs_git() -> None:
    """Runs git."""


@pytest.fixture(scope="session")
def starts_processes() -> None:
    """Starts other processes, or connects to a port."""


def kind_of(item: pytest.Item) -> str:
    """The kind of a test."""
    used = getattr(item, "fixturenames", ())
    return next((kind for kind, fixture in FIXTURES.items() if fixture in used), IN_PROCESS)


def smoke() -> dict[str, str]:
    """The tests of smoke.txt, each with the reason why the quick part plays it."""
    lines = [line for line in (HERE / "smoke.txt").read_text().splitlines() if line and not line.startswith("#")]
    if len(lines) > SMOKE_LIMIT:
        raise pytest.UsageError(f"smoke.txt names {len(lines)} tests: at most {SMOKE_LIMIT}")
    return {name: reason for name, _, reason in (line.partition("  # ") for line in lines)}


class Watch:
    """Counts tests and the processes that they start, by kind, and notes those that a test may not start."""

    def __init__(self) -> None:
        self.kind = ""  # of the test that runs; empty while a fixture of several tests is made, and between tests
        self.tests: Counter[str] = Counter()
        self.processes: Counter[str] = Counter()
        self.forbidden: list[str] = []

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook (`sys.addaudithook`): Python calls it before it starts a process or connects a socket."""
        if not self.kind:
            return
        if event in STARTS or (event == "socket.connect" and FORK_SERVER in str(arguments[1])):
            self.processes[self.kind] += 1
        elif event != "socket.connect":
            return
        if self.kind in QUICK:
            self.forbidden.append(f"{event} {arguments[1] if len(arguments) > 1 else ''}"[:200])


WATCH = Watch()
sys.addaudithook(WATCH.hook)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kind", default="", help=f"play {', '.join(KINDS)} (several with commas), quick, or rest")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `--kind` does not name."""
    wanted = {kind for kind in config.getoption("--kind").split(",") if kind}
    if unknown := wanted - {*KINDS, "quick", "rest"}:
        raise pytest.UsageError(f"--kind has no {', '.join(sorted(unknown))}: it takes {', '.join(KINDS)}, quick, rest")
    if not wanted:
        return
    smoky = smoke()
    if config.args == config.getini("testpaths") and (lost := smoky.keys() - {item.nodeid for item in items}):
        raise pytest.UsageError(f"smoke.txt names tests that are not there: {', '.join(sorted(lost))}")

    def is_wanted(item: pytest.Item) -> bool:
        kind = kind_of(item)
        part = "quick" if kind in QUICK or item.nodeid in smoky else "rest"
        return kind in wanted or part in wanted

    left_out = [item for item in items if not is_wanted(item)]
    items[:] = [item for item in items if is_wanted(item)]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the test."""
    WATCH.kind = kind_of(item)
    WATCH.tests[WATCH.kind] += 1
    WATCH.forbidden.clear()
    try:
        return (yield)
    finally:
        WATCH.kind = ""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
    """What several tests share is no test's own."""
    kind = WATCH.kind
    if fixturedef.scope != "function":
        WATCH.kind = ""
    try:
        return (yield)
    finally:
        WATCH.kind = kind


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of a quick kind that started a process or connected to a port."""
    yield
    if WATCH.forbidden:
        pytest.fail(
            f"A test of the kind {WATCH.kind} started a process or connected to a port ({WATCH.forbidden[0]}). "
            "Use a fixture that says so: see tests/kinds.py."
        )


class Counts:
    """What all workers counted, in the form of counts.toml, and whether that is within its numbers."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.processes: Counter[str] = Counter()

    def add(self, tests: dict[str, int], processes: dict[str, int]) -> None:
        self.tests.update(tests)
        self.processes.update(processes)

    def faults(self, part: str) -> list[str]:
        """What counts.toml does not allow: fewer tests of a kind, or more processes, by over `SLACK`."""
        known = tomllib.loads((HERE / "counts.toml").read_text()).get(part, {})
        found = []
        for kind, counts in known.items():
            tests, processes = counts["tests"], counts["processes"]
            if self.tests[kind] < tests - SLACK:
                found.append(f"{kind}: {self.tests[kind]} tests, where tests/counts.toml has {tests}")
            if self.processes[kind] > processes + SLACK:
                found.append(f"{kind}: {self.processes[kind]} processes, where tests/counts.toml has {processes}")
        return found


COUNTS = Counts()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what this process counted; after a whole part, compare it."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["counts"] = (dict(WATCH.tests), dict(WATCH.processes))
        return
    COUNTS.add(dict(WATCH.tests), dict(WATCH.processes))
    if _is_whole(config) and COUNTS.faults(config.getoption("--kind")) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the counts of this run."""
    if not COUNTS.tests:
        return
    part = config.getoption("--kind") or "all"
    terminalreporter.section("tests and processes by kind")
    for kind in KINDS:
        if COUNTS.tests[kind]:
            counted = f"tests = {COUNTS.tests[kind]}, processes = {COUNTS.processes[kind]}"
            terminalreporter.write_line(f'{part}."{kind}" = {{ {counted} }}')
    if _is_whole(config):
        for fault in COUNTS.faults(part):
            terminalreporter.write_line(f"ERROR {fault}: mend it, or change that file and say why.")


def _is_whole(config: pytest.Config) -> bool:
    """Whether this run plays a whole part, on SQLite."""
    is_narrowed = config.args != config.getini("testpaths") or config.option.keyword
    return config.getoption("--kind") in ("quick", "rest") and not is_narrowed and not SERVER


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker of a parallel run counted."""
    if counts := getattr(node, "workeroutput", {}).get("counts"):
        COUNTS.add(*counts)

"""What many tests need: an operation called as a transport calls it, and a project directory."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.template import Template
from django.test import TransactionTestCase
from filelock import FileLock
from httpx._config import DEFAULT_TIMEOUT_CONFIG, create_ssl_context
from httpx._transports import default as httpx_transport
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker, Settings

from coordination.models import Event, RetentionPass
from coordination.services import agent_limits, agents
from coordination.services import settings as stored
from coordination.toolset import run
from nexus.control.runners import sandbox
from nexus.control.runners.git import Git, Prepared
from nexus.core import foreign_files, waiting
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller
from nexus.dashboard import site
from nexus.topics import connections
from nexus.web import markdown
from nexus.web.login import Throttle
from nexus_site.launch import is_lean
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import nexus
from tests.postgres import SERVER, database_of
from tests.preload import staying

pytest_plugins = ["tests.kinds", "tests.pages"]
Call = Callable[..., dict[str, Any]]
Nest = Callable[..., None]
Furnish = Callable[[Path], Path]
LOCAL = Caller(transport="test")
OPERATOR = Caller(transport="test", operator="olga")
T = TypeVar("T")
MIGRATED = {"auth_permission", "django_content_type"}  # the tables whose rows come with the schema
HUNG_SECONDS, HUNG_AGAIN_SECONDS = 600, 10  # the longest test takes 180 on two cores
HUNG_LONG_SECONDS = 1800  # for those of `make long`, one of which takes ten minutes anywhere
PREPARED = Git.prepared
RENDER = Template._render  # type: ignore[attr-defined]
REAL_PROCESSES = ("acceptance", "agents", "browser", "control", "forges", "reservations")  # folders of tests

# A loaded machine is no failure: nothing is asserted about time.
settings.register_profile("whole", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
# Each run draws other examples, so a suite that runs often needs few.
settings.register_profile("part", settings.get_profile("whole"), max_examples=10)
settings.load_profile("part")
for phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, phase, 180)
# Every call of httpx makes itself ready for TLS, which no test uses: once will do, it takes 25 ms.
vars(httpx_transport)["create_ssl_context"] = cache(create_ssl_context)


def pytest_configure() -> None:
    """What the processes that tests start inherit.

    They heed Ctrl-C, and a terminal that closes, although a suite in the background was started to ignore them, and
    keep what they compiled, as this process does: hundreds of them import the same.
    """
    for number, heeded in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heeded)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each core where tests compute, and two where most of them wait for processes that they started.

    The part on PostgreSQL runs beside that one and is the smaller: it gets a worker for two cores.
    """
    cores = os.cpu_count() or 1
    if SERVER:
        return max(1, cores // 2)
    return cores if config.getoption("--kind") == "quick" else cores * 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse two tests with one id: a parallel run deals them out by id, and would play one of them only.

    What is marked as SQLite's alone is skipped on PostgreSQL. What drives real processes comes first, for there the
    long files are: pytest-django has put what needs no database last, where one alone keeps the other cores idle.
    """
    twice = [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"Tests share an id: {twice}")
    for item in items:
        if SERVER and item.get_closest_marker("sqlite"):
            item.add_marker(pytest.mark.skip("on SQLite alone"))
    items.sort(key=lambda item: item.path.parent.name not in REAL_PROCESSES)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What hangs fails, with the stacks of all threads, and is the last: what it used may hang again.

    pytest-timeout would not do: its clock stops for good at a test's first failure, and what tears the test down would
    have none.
    """

    seconds = HUNG_LONG_SECONDS if item.get_closest_marker("long") else HUNG_SECONDS

    def hung(*_: object) -> None:
        faulthandler.dump_traceback()
        item.session.shouldstop = f"{item.nodeid} hangs"
        pytest.fail(f"It hangs: it took longer than {seconds} s.")

    signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, seconds, HUNG_AGAIN_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays, and a search for garbage need not look through it again and again."""
    with staying():
        return (yield)


def examples(count: int) -> int:
    """The loaded profile's share of so many examples: all of them in `make long`."""
    return max(1, count * settings().max_examples // 100)


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls on as many threads, each with a connection of its own, all let go together; their results in order."""
    gate = threading.Barrier(len(calls))

    def go(call: Callable[[], T]) -> T:
        gate.wait(timeout=START_SECONDS)
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(go, calls))


def streamed(answer: Any) -> str:
    """All that a streaming answer says, read as the server reads it."""

    async def read() -> bytes:
        return b"".join([part async for part in answer])

    return async_to_sync(read)().decode()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make a directory of the run, to be copied: the workers of a parallel run share it. A database goes with the
    process that made it, so on PostgreSQL each worker makes its own."""
    of_this_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ and not SERVER:
        of_this_run = of_this_run.parent

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        place = of_this_run / name
        with FileLock(f"{place}.lock"):
            if not place.exists():
                fill(place)
        return place.resolve()

    return make


@pytest.fixture(scope="session")
def furnished(made_once: Callable[..., Path]) -> Path:
    """A home with an empty store, to be copied: to copy one is quicker than to migrate."""

    def furnish(home: Path) -> None:
        assert not is_lean("operators")  # so it makes the hub's tables, too, which each hub would make anew
        assert "Traceback" not in nexus(home, "operators", "list").stderr

    return made_once("furnished", furnish)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(furnished: Path) -> None:
    """This process's store begins as a copy. Every worker has a home of its own, so it needs no name of its own."""
    if SERVER:
        connection.settings_dict["TEST"]["TEMPLATE"] = Path(database_of(furnished, SERVER)).name
    else:
        shutil.copy(furnished / "nexus.db", django_settings.NEXUS.database)


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Whether there is a store before Django makes one."""
    return not SERVER


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """At the end, the connections that threads still have are ended: PostgreSQL removes no database under them."""
    yield
    if SERVER:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@cache
def which_have_rows() -> str:
    """A query of the tables that a test may have committed to, and that have rows."""
    tables = {*connection.introspection.django_table_names()} - MIGRATED
    return " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in sorted(tables))


def settled() -> None:
    """Wait for the hub's threads, of which a call that was given up goes on. pytest-django refuses the database between
    two tests: a transaction that ended then would leave its connection without autocommit, and fail later tests."""
    threads = {waiting.WRITERS: 1, waiting.writing_calls(): store().WRITERS, waiting.SLOW: 3, waiting.MINUTES: 4}
    of_agents = {waiting.SLOW: 2, waiting.MINUTES: 3}
    for pool, count in threads.items():
        callers = [None] * count + [f"agent-{number}" for number in range(of_agents.get(pool, 0))]
        together = threading.Barrier(len(callers))
        wait([waiting.submit(pool, partial(together.wait, START_SECONDS), caller) for caller in callers])


def cleared(_: TransactionTestCase) -> None:
    """Empty the tables that a test committed to. Django empties all, then makes permissions and triggers anew as after
    a migration: that takes as long as many a test."""
    settled()
    with transaction.atomic(), connection.cursor() as cursor:
        RetentionPass.objects.create()  # or the log refuses the DELETE
        Event.objects.all().delete()
        cursor.execute(which_have_rows())
        for (table,) in cursor.fetchall():
            cursor.execute(f"DELETE FROM {table}")


TransactionTestCase._fixture_teardown = cleared  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def unwatched_templates(django_test_environment: None) -> None:
    """Django's test client would copy the context of each template that a page includes: a tenth of the page's time."""
    Template._render = RENDER  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def tried_programs(django_test_environment: None) -> None:
    """A process tries the sandbox of its machine once: here, and not in the midst of a test that needs it."""
    sandbox.state()


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """What a test stored is rolled back; the process forgets it, too, or the next test would act on it."""
    started = django_settings.NEXUS
    site.THROTTLE = Throttle()
    markdown._spent.set(None)  # of the page that the test before made
    yield
    agents._renewed.clear()
    connections._held.clear()
    connections._topics.clear()
    agent_limits._kept, stored._applied = {}, {}
    stored._looked = 0.0  # the next call looks for itself, at whichever time its test plays
    django_settings.NEXUS = started


@pytest.fixture
def counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls look at the stored settings once a second: no more, where a test counts their own queries."""
    monkeypatch.setattr(stored, "REFRESH_SECONDS", float("inf"))


@pytest.fixture(scope="session")
def furnish(furnished: Path) -> Furnish:
    """Give a home that is not there yet an empty store, and get the home."""

    def copy(home: Path) -> Path:
        if SERVER:
            database_of(home.resolve(), SERVER, like=furnished)
        return Path(shutil.copytree(furnished, home))

    return copy


@pytest.fixture
def project(tmp_path: Path) -> str:
    """A real project directory."""
    root = tmp_path / "project"
    root.mkdir()
    return str(root)


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Nest]:
    """Make directories in each other, with a file in each: their path is longer than any system call takes.

    What a test leaves is removed: pytest, which removes a directory within a directory by recursion, could not.
    """

    def make(top: Path, depth: int = 1_500) -> None:
        here = os.open(top, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)

    yield make
    foreign_files.remove(str(tmp_path))


@pytest.fixture
def call(db: None) -> Call:
    """Call an operation and get its data; the test fails on an error."""

    def ok(name: str, /, **arguments: Any) -> dict[str, Any]:
        envelope = run(LOCAL, name, arguments)
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    return ok


def does(name: str, **arguments: Any) -> dict[str, Any]:
    """The answer of an operation that an operator called."""
    return dict(run(OPERATOR, name, arguments))


@pytest.fixture
def refused(db: None) -> Call:
    """Call an operation that must fail and get its error."""

    def error(name: str, /, **arguments: Any) -> dict[str, Any]:
        envelope = run(LOCAL, name, arguments)
        assert not envelope["ok"], envelope
        failure: dict[str, Any] = envelope["error"]
        return failure

    return error


@pytest.fixture
def committed(transactional_db: None) -> None:
    """What the test writes is committed, so that other threads see it; it is cleared afterwards."""


@pytest.fixture
def configure(settings: Settings) -> Callable[..., None]:
    """Change Nexus's own settings for one test: `configure(trust_mode="strict")`."""

    def change(**values: Any) -> None:
        settings.NEXUS = settings.NEXUS.replaced(**values)

    return change


@pytest.fixture
def kept_variables() -> Iterator[None]:
    """Whatever the test does to the variables of this process is undone."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def git_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's git runs without a sandbox or a guardian: what it does is the same, ten times as quick."""

    def prepared(git: Git, command: Sequence[str], values: Mapping[str, str], scratch: str) -> Prepared:
        return Prepared(command, git.work_tree, git.environment(values, scratch), True)

    monkeypatch.setattr(Git, "prepared", prepared)


@pytest.fixture
def sandboxed(runs_sandbox: None, git_alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's git runs in a sandbox after all, if there is one."""
    monkeypatch.setattr(Git, "prepared", PREPARED)


@pytest.fixture
def team(call: Call) -> None:
    """Three registered agents: ana, who asks; bob, a reviewer who reads scans; cleo, a coder."""
    call("agent_register", agent_id="ana")
    call("agent_register", agent_id="bob", role="reviewer", capabilities=["ocr", "python"])
    call("agent_register", agent_id="cleo", role="coder", capabilities={"python": True, "ocr": False})


@pytest.fixture
def workspace(call: Call, project: str) -> str:
    """The id of the project's workspace."""
    workspace_id: str = call("workspace_resolve", project_root=project)["workspace_id"]
    return workspace_id


@pytest.fixture
def ann(call: Call) -> str:
    """A registered agent."""
    call("agent_register", agent_id="ann", role="reviewer", capabilities=["py"])
    return "ann"

"""PostgreSQL as the store: which URLs are taken, what its errors mean, and that nobody misses what is committed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from psycopg_pool import PoolTimeout

from coordination.log.emit import emit
from coordination.models import Agent, Event
from coordination.toolset import run
from nexus.core.clock import now
from nexus.core.config import CoreSettings, parse, resolve, without_password
from nexus.core.database.postgres.connection import Connection, failure, is_busy, is_lost, parameters
from nexus.core.database.postgres.store import MOST_NAMES, django_settings
from nexus.core.database.sql import insert
from nexus.core.database.store import commits, in_one_transaction, store, write
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL, at_once
from tests.postgres import SERVER

ROOT = Path(__file__).resolve().parents[2]
SECRET = "geheim"
postgresql = pytest.mark.skipif(not SERVER, reason="on PostgreSQL alone")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "postgresql://"),
        ("", "postgresql://"),
        (f"mysql://u:{SECRET}@h/x", "For SQLite use --db-path"),
        (f"postgresql://u:{SECRET}@h", "name the database"),
        (f"postgresql://u:{SECRET}@h/", "name the database"),
        (f"postgresql://u:{SECRET}@h:99999/x", "%-encoded"),
        (f"postgresql://u:{SECRET}@h:port/x", "%-encoded"),
        (f"postgresql://u:{SECRET}@h:5432,i:port/x", "%-encoded"),
        (f"postgresql://u:{SECRET}@h/x?colour={SECRET}", "libpq's parameters"),
        (f"postgresql://u:{SECRET}%ZZ@h/x", "libpq's parameters"),
        (f"postgresql://u:{SECRET}@h/x\x00", "NUL"),
    ],
)
def test_it_refuses_a_url_that_is_none_and_keeps_its_password_to_itself(url: str, said: str) -> None:
    with pytest.raises(NexusError) as caught:
        parse("database_url", url, "NEXUS_DATABASE_URL")
    assert caught.value.code == Code.CONFIG_ERROR
    assert said in caught.value.message
    assert SECRET not in caught.value.message


def test_it_takes_one_place_for_the_store() -> None:
    url = f"postgresql://u:{SECRET}@h/x"
    with pytest.raises(NexusError, match="give one of them") as caught:
        resolve({"NEXUS_DATABASE_URL": url}, {"db_path": "/tmp/nexus.db"})
    assert caught.value.code == Code.CONFIG_ERROR
    taken: CoreSettings = resolve({}, {"database_url": url}).settings
    assert taken.database_url == url
    assert taken.location == "postgresql://u@h/x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            f"postgres://ann:{SECRET}@db.example:5433/nexus?sslmode=require",
            "postgresql://ann@db.example:5433/nexus?sslmode=require",
        ),
        (f"postgresql://ann:{SECRET}@[::1]/nexus?password={SECRET}", "postgresql://ann@[::1]/nexus"),
        ("postgresql:///nexus", "postgresql:///nexus"),
    ],
)
def test_it_shows_a_url_without_what_is_secret(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_it_tells_the_server_its_own_name_whatever_the_url_says() -> None:
    config = resolve({}, {"database_url": "postgresql://u@h/x?application_name=mine&sslmode=require"}).settings
    for told in (parameters(config), django_settings(config)["OPTIONS"]):
        assert (told["application_name"], told["sslmode"]) == ("nexus", "require")


def test_it_lists_the_setting_without_the_password(db: None, configure: Callable[..., None]) -> None:
    configure(database_url=f"postgresql://ann:{SECRET}@h/x")
    answer = run(Caller(transport="test", operator="ann"), "settings_list", {})
    assert SECRET not in str(answer)
    rows = {row["name"]: row["value"] for row in answer["data"]["settings"]}
    assert rows["database_url"] == "postgresql://ann@h/x"


def spoken(text: str) -> psycopg.Error:
    return psycopg.OperationalError(text)


@pytest.mark.parametrize(
    ("error", "retryable", "cause"),
    [
        (psycopg.errors.LockNotAvailable(), True, None),
        (psycopg.errors.SerializationFailure(), True, None),
        (psycopg.errors.DeadlockDetected(), True, None),
        (psycopg.errors.TooManyConnections(), True, "too_many_connections"),
        (psycopg.errors.AdminShutdown(), True, "unreachable"),
        (psycopg.errors.CannotConnectNow(), True, "unreachable"),
        (spoken("connection to server failed: Connection refused"), True, "unreachable"),
        (psycopg.InterfaceError("the connection is closed"), True, "unreachable"),
        (psycopg.errors.InsufficientPrivilege(), False, "forbidden"),
        (psycopg.errors.DiskFull(), False, "disk_full"),
        (psycopg.errors.ReadOnlySqlTransaction(), True, "read_only"),
        (spoken('connection to server at "h", port 5432 failed: session is read-only'), True, "read_only"),
        (spoken("FATAL:  sorry, too many clients already"), True, "too_many_connections"),
        (spoken('FATAL:  too many connections for role "ann"'), True, "too_many_connections"),
        (spoken("FATAL:  the database system is starting up"), True, "unreachable"),
        (spoken("FATAL:  the database system is in recovery mode"), True, "unreachable"),
        (spoken('FATAL:  password authentication failed for user "ann"'), False, "refused"),
        (spoken('FATAL:  role "ann" does not exist'), False, "refused"),
        (spoken('FATAL:  database "nix" does not exist'), False, "missing"),
    ],
)
def test_it_tells_what_may_be_sent_again_from_what_may_not(
    error: psycopg.Error, retryable: bool, cause: str | None
) -> None:
    wrapped = DatabaseError(str(error))
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        known = failure(raised)
        assert known is not None and known.code == Code.DB_ERROR
        assert known.details.get("retryable", False) is retryable is is_busy(raised)
        assert known.details.get("cause") == cause
        assert is_lost(raised) is (cause == "unreachable")
    assert failure(psycopg.errors.UniqueViolation()) is failure(ValueError("x")) is None


def test_a_pool_without_connections_says_why_none_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def cause() -> tuple[Any, Any]:
        known = failure(PoolTimeout("couldn't get a connection after 5.00 sec"))
        assert known is not None
        return known.details.get("retryable", False), known.details["cause"]

    monkeypatch.setattr(Connection, "_error", None)  # whatever an earlier test left
    assert cause() == (True, "unreachable")
    for text, expected in (
        ("connection failed: session is read-only", (True, "read_only")),
        ('FATAL:  password authentication failed for user "ann"', (False, "refused")),
        ("connection failed: Connection refused", (True, "unreachable")),
    ):
        monkeypatch.setattr(Connection, "_error", spoken(text))
        assert cause() == expected


def test_it_takes_several_hosts() -> None:
    url = f"postgresql://u:{SECRET}@one:5432,[::1]:5433/x"
    config = resolve({}, {"database_url": url}).settings
    assert config.location == "postgresql://u@one:5432,[::1]:5433/x"
    options = django_settings(config)["OPTIONS"]
    assert (options["host"], options["port"]) == ("one,::1", "5432,5433")
    assert options["target_session_attrs"] == "read-write"


@pytest.fixture
def other() -> Iterator[psycopg.Connection[Any]]:
    """A connection of somebody else to the same database."""
    with closing(psycopg.connect(str(settings.NEXUS.database_url), autocommit=True)) as other:
        yield other


def add(number: int) -> None:
    answer = run(LOCAL, "agent_register", {"agent_id": f"agent-{number}"})
    assert answer["ok"], answer


def begins(*names: str) -> bool:
    """Whether a writing transaction of another connection begins now."""

    def begin() -> bool:
        try:
            with store().without_waiting(), write(*names):
                return True
        except OperationalError as error:
            assert store().is_busy(error)
            return False

    return at_once([begin])[0]


@postgresql
@pytest.mark.django_db(transaction=True)
def test_writers_run_beside_those_without_their_names_alone() -> None:
    with write("ann", "here"):
        assert begins("bob", "there")
        assert not begins("here", "bob")
        assert not begins()
    for names in ((), map(str, range(MOST_NAMES + 1))):
        with write(*names):
            assert not begins("bob")
    assert begins()


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_writer_that_stands_still_is_ended_by_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose process was stopped, or whose machine sleeps."""
    monkeypatch.setattr("nexus.core.database.postgres.store.STILL_SECONDS", 0)
    with pytest.raises(DatabaseError) as caught, write("ann"):
        assert not begins() and begins()
        Event.objects.count()
    assert is_lost(caught.value) and is_busy(caught.value)
    connection.close()


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_writer_within_another_has_none_but_its_names() -> None:
    with write("ann", "here"):
        with write("ann"):
            pass
        for names in (("bob",), ("ann", "bob"), ()):
            with pytest.raises(RuntimeError, match="names"), write(*names):
                pass
    with write(), write("ann"):
        pass
    with transaction.atomic(), write():  # which knows nothing of the names before
        pass


@postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("names", [("bob",), ("ann", "bob"), ()])
def test_one_that_outlasts_its_block_takes_the_names_of_what_follows(names: tuple[str, ...]) -> None:
    with in_one_transaction():
        with write("ann"):
            say("first")
        with write(*names):
            say("last")
        assert not begins("ann") and not begins("bob")
        assert begins("cleo") is bool(names)
    assert list(Event.objects.order_by("pk").values_list("type", flat=True)) == ["first", "last"]


@postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("names", [("bob",), ()])
def test_a_name_that_was_taken_back_is_taken_again(names: tuple[str, ...]) -> None:
    with in_one_transaction():
        with write("ann"):
            pass
        with pytest.raises(ZeroDivisionError), write("ann"), write(*names):
            raise ZeroDivisionError
        assert begins("bob")
        with write("bob"):
            assert not begins("bob")


def say(type: str) -> Event:
    return emit(workspace_id=None, stream="agent", type=type, actor="ann", payload={}, moment=now())


@postgresql
@pytest.mark.django_db(transaction=True)
def test_the_log_has_what_a_writer_beside_others_says_once_it_commits_and_nothing_that_it_took_back() -> None:
    with write("ann"):
        first = say("kept")
        with pytest.raises(ZeroDivisionError), write("ann"):
            say("taken back")
            raise ZeroDivisionError
        last = say("kept, too")
        assert not Event.objects.exists()
    assert list(Event.objects.order_by("pk").values_list("pk", "type")) == [
        (first.event_id, "kept"),
        (last.event_id, "kept, too"),
    ]
    with pytest.raises(ZeroDivisionError), write("ann"):
        say("rolled back")
        raise ZeroDivisionError
    with write("ann"):
        pass
    assert Event.objects.count() == 2


@postgresql
@pytest.mark.django_db(transaction=True)
def test_the_log_has_it_at_once_where_the_transaction_outlasts_the_block() -> None:
    with in_one_transaction():
        with write("ann"):
            event = say("kept")
        assert Event.objects.get().event_id == event.event_id


@postgresql
@pytest.mark.django_db(transaction=True)
def test_an_error_that_comes_with_the_commit_takes_everything_back() -> None:
    agent = Agent(agent_id="ann", created_at=now(), updated_at=now())
    with pytest.raises(IntegrityError), write("ann"):
        say("never")
        with store().batch():
            insert(agent, agent)
    assert not Agent.objects.exists() and not Event.objects.exists()


@postgresql
@pytest.mark.django_db(transaction=True)
def test_it_does_not_wait_where_that_is_asked(other: psycopg.Connection[Any]) -> None:
    with other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x4E787573])
        with store().without_waiting(), pytest.raises(OperationalError) as caught, write():
            pass
        assert store().is_busy(caught.value)
    with write():
        pass
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == (f"{settings.NEXUS.busy_timeout_ms // 1000}s",)


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_lock_at_a_server_that_takes_no_writes_is_held_no_more() -> None:
    lock = store().exclusive_lock("test")
    assert lock is not None and lock.held()
    lock._holder.execute("SET default_transaction_read_only = on")  # type: ignore[attr-defined]
    assert not lock.held()
    lock.release()


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_server_that_takes_no_writes_is_left(other: psycopg.Connection[Any]) -> None:
    def refuse() -> None:
        with write(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            Agent.objects.create(agent_id="ann", created_at=now(), updated_at=now())

    def connected() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    def connections() -> set[int]:
        return {row[0] for row in other.execute("SELECT pid FROM pg_stat_activity")}

    before = {connected(), *at_once([connected] * 2)}  # two of them are idle now
    with pytest.raises(DatabaseError):
        refuse()
    connection.close()
    deadline = time.monotonic() + START_SECONDS
    while before & connections():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    add(1)


def end_all(other: psycopg.Connection[Any]) -> None:
    """End every connection of this process, as a server that restarts does."""
    other.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_server_that_ended_the_connections_costs_no_call(other: psycopg.Connection[Any]) -> None:
    add(1)
    end_all(other)
    add(2)
    assert Agent.objects.count() == 2


@postgresql
@pytest.mark.django_db(transaction=True)
def test_nor_does_it_cost_one_that_a_full_pool_was_ended(other: psycopg.Connection[Any]) -> None:
    held = threading.Barrier(8)

    def hold() -> None:
        Agent.objects.count()
        held.wait(timeout=START_SECONDS)

    at_once([hold] * 8)
    end_all(other)
    add(1)
    assert Agent.objects.count() == 1


@postgresql
@pytest.mark.django_db(transaction=True)
def test_nor_does_one_that_ends_after_the_look_at_it(
    other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(caller: Caller, operation: Any, params: Any) -> None:
        looks.append(operation.name)
        if len(looks) == 1:
            end_all(other)
        Agent.objects.count()

    looks: list[str] = []
    monkeypatch.setattr(apps.get_app_config("coordination"), "check_call", check)
    add(1)
    assert looks == ["agent_register"] * 2


@postgresql
@pytest.mark.django_db(transaction=True)
def test_it_repeats_what_was_lost_before_the_commit(
    other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from coordination.services import agents

    register, cuts = agents.register, [True]

    def cut(**arguments: Any) -> Any:
        made = register(**arguments)
        if cuts:
            cuts.pop()
            end_all(other)
            Agent.objects.count()  # raises: the connection is gone
        return made

    def within(**arguments: Any) -> Any:
        with write():
            return cut(**arguments)

    monkeypatch.setattr(agents, "register", within)
    add(1)
    assert not cuts
    assert Event.objects.filter(type="agent.registered").count() <= 1
    assert list(Agent.objects.values_list("agent_id", flat=True)) == ["agent-1"]


@postgresql
@pytest.mark.django_db(transaction=True)
def test_it_repeats_nothing_whose_commit_is_in_doubt(
    other: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    before = commits()
    with pytest.raises(NexusError, match="may have taken effect, or not") as caught, write():
        Agent.objects.count()
        end_all(other)
    assert caught.value.details == {"cause": "commit_in_doubt"}
    assert "The connection was lost while a transaction was committed (" in caplog.text
    assert "Traceback" not in caplog.text
    assert commits() == before
    connection.close()


def command(url: str, home: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "status"],
        env={**inherited, "NEXUS_HOME": str(home), "NEXUS_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )


@pytest.mark.usefixtures("starts_processes")
def test_it_says_that_no_server_answers(tmp_path: Path) -> None:
    done = command(f"postgresql://ann:{SECRET}@127.0.0.1:1/nexus", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "[nexus] DB_ERROR: No database server answers at postgresql://ann@127.0.0.1:1/nexus. "
        "Start it, or correct host, port and sslmode of the URL.\n"
    )


@pytest.fixture
def places(other: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """By what is wrong with it, the URL of a database that cannot be the store."""
    own = str(settings.NEXUS.database_url)
    server, _, name = own.rpartition("/")
    _, _, address = server.rpartition("@")
    weak = f"{name}_weak"
    for statement in (
        f"DROP DATABASE IF EXISTS {name}_ascii",
        f"DROP DATABASE IF EXISTS {weak}",
        f"DROP ROLE IF EXISTS {weak}",
        f"CREATE DATABASE {name}_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'",
        f"CREATE DATABASE {weak}",
        f"CREATE ROLE {weak} LOGIN PASSWORD '{SECRET}'",
    ):
        other.execute(statement.encode())
    with closing(psycopg.connect(f"{server}/{weak}", autocommit=True)) as inside:
        inside.execute("REVOKE CREATE ON SCHEMA public FROM public")
    yield {
        "does not exist": f"{server}/{name}_nowhere",
        "refuses the user": f"postgresql://{name}_nobody:{SECRET}@{address}/{name}",
        "encoding SQL_ASCII": f"{server}/{name}_ascii",
        "cannot create tables": f"postgresql://{weak}:{SECRET}@{address}/{weak}",
    }
    for statement in (f"DROP DATABASE {name}_ascii", f"DROP DATABASE {weak}", f"DROP ROLE {weak}"):
        other.execute(statement.encode())


@pytest.mark.usefixtures("starts_processes")
@postgresql
@pytest.mark.django_db(transaction=True)
def test_it_refuses_a_database_that_cannot_be_the_store(places: dict[str, str], tmp_path: Path) -> None:
    for said, url in places.items():
        done = command(url, tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert done.stderr.startswith("[nexus] DB_ERROR: ") and said in done.stderr
        assert done.stderr.count("\n") == 1
        assert SECRET not in done.stderr


@postgresql
@pytest.mark.django_db(transaction=True)
def test_it_refuses_a_store_of_a_newer_version(other: psycopg.Connection[Any], tmp_path: Path) -> None:
    other.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('inbox', '9999_future', now())")
    try:
        with pytest.raises(NexusError, match="newer version") as caught:
            store().prepare()
    finally:
        other.execute("DELETE FROM django_migrations WHERE name = '9999_future'")
    assert caught.value.code == Code.MIGRATION_ERROR


@postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER events_refuse_update ON events",
        "ALTER TABLE events DISABLE TRIGGER events_refuse_update",
        "DROP TRIGGER events_refuse_update ON events; CREATE TRIGGER events_refuse_update BEFORE UPDATE OF stream "
        "ON events FOR EACH ROW EXECUTE FUNCTION events_refuse_update()",
        "CREATE OR REPLACE FUNCTION events_refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RETURN new; END $$",
    ],
    ids=["dropped", "disabled", "of another moment", "of another function"],
)
def test_it_makes_a_trigger_anew_that_is_not_as_it_should_be(other: psycopg.Connection[Any], change: str) -> None:
    assert not store().pending()
    other.execute(change.encode())
    assert store().pending()
    store().prepare()
    assert not store().pending()
    Event.objects.create(stream="workspace", type="made.by.the.test", created_at=now())
    with pytest.raises(psycopg.Error, match="append-only"):
        other.execute("UPDATE events SET type = 'other'")


@pytest.mark.usefixtures("starts_processes")
@postgresql
@pytest.mark.django_db(transaction=True)
def test_several_processes_that_start_together_make_one_store(other: psycopg.Connection[Any], tmp_path: Path) -> None:
    server, _, name = str(settings.NEXUS.database_url).rpartition("/")
    other.execute(f"DROP DATABASE IF EXISTS {name}_fresh".encode())
    other.execute(f"CREATE DATABASE {name}_fresh".encode())
    try:
        done = at_once([lambda: command(f"{server}/{name}_fresh", tmp_path)] * 4)
        assert [process.returncode for process in done] == [0] * 4, done
    finally:
        other.execute(f"DROP DATABASE {name}_fresh WITH (FORCE)".encode())

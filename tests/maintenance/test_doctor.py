"""`nexus doctor` on a healthy store and on what goes wrong without damage to the file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nexus.core import files, outward, progress
from nexus.core.clock import now
from nexus.core.processes import CODE
from nexus.hooks import hook_state, setup_record
from nexus.hooks.setup_record import Record, Written
from nexus.maintenance import checks, store_file
from nexus.reservations.guard import hooks
from tests.git import git
from tests.maintenance.conftest import Done, Home, entries

pytestmark = pytest.mark.sqlite  # its subject is the file

Nexus = Callable[..., Done]


@pytest.fixture
def findings(nexus: Nexus) -> Callable[..., list[dict[str, Any]]]:
    """What the doctor finds."""

    def examine(*arguments: str) -> list[dict[str, Any]]:
        done = nexus("doctor", "--json", *arguments)
        report = json.loads(done.out)
        assert done.code == (0 if report["healthy"] else 1)
        found: list[dict[str, Any]] = report["findings"]
        return found

    return examine


Findings = Callable[..., list[dict[str, Any]]]


def test_it_finds_nothing_on_a_healthy_store_and_touches_nothing(home: Home, nexus: Nexus) -> None:
    before = {path.name: path.read_bytes() for path in home.path.iterdir()}

    done = nexus("doctor")

    assert done.code == 0
    assert "healthy" in done.out
    assert {path.name: path.read_bytes() for path in home.path.iterdir()} == before


def test_it_tells_at_which_check_a_long_one_is(home: Home, nexus: Nexus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(store_file, "STEPS_A_LOOK", 10)

    told = nexus("doctor").err

    each = r", table \d+ of \d+"
    for check in ("integrity of the file", f"integrity of events{each}", f"references of events{each}"):
        assert re.search(rf"doctor: {check}, \d+ s so far", told)


def test_it_finds_a_page_that_is_free_and_in_use(home: Home, findings: Findings) -> None:
    filler = "INSERT INTO filler SELECT zeroblob(3000) FROM events"
    home.sql("PRAGMA journal_mode=DELETE", "CREATE TABLE filler (x)", filler, "DROP TABLE filler")
    [(used,)] = home.sql("SELECT rootpage FROM sqlite_master WHERE name = 'agents'")
    with home.database.open("r+b") as file:
        file.seek(32)  # the header's first page of the list of free ones
        first = int.from_bytes(file.read(4), "big")
        file.seek((first - 1) * 4096 + 8)  # the first that this page lists
        file.write(used.to_bytes(4, "big"))

    assert "integrity" in {finding["check"] for finding in findings()}


def test_it_finds_nothing_after_a_crash_that_left_a_log(crashed: Home, nexus: Nexus) -> None:
    assert nexus("doctor").code == 0
    assert "nexus.db-wal" in entries(crashed.path)


def test_it_says_when_there_is_nothing_to_examine(home: Home, nexus: Nexus) -> None:
    home.database.unlink()

    done = nexus("doctor")

    assert done.code == 2
    assert "There is no store" in done.err


def test_it_names_what_is_wrong_with_the_machine_without_a_store(
    home: Home, nexus: Nexus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.database.unlink()
    (tmp_path / "shop" / "inbox").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/shop")

    done = nexus("doctor")

    assert f"note (imports): {tmp_path}/shop, on PYTHONPATH" in done.out


def test_it_finds_files_that_two_agents_hold_and_reservations_that_protect_nothing(
    home: Home, findings: Findings
) -> None:
    home.sql(
        "UPDATE file_reservations SET released_at = NULL, outcome = NULL, agent_id = 'bob', pattern = 'src/a.py'"
        " WHERE pattern = '/docs/'"
    )
    assert ["the index key of their pattern" in finding["problem"] for finding in findings()] == [True]

    home.sql("UPDATE file_reservations SET place = (SELECT place FROM file_reservations WHERE pattern = '/src/')"
             " WHERE pattern <> '*.lock'")  # fmt: skip
    problems = [finding["problem"] for finding in findings()]
    assert "'ana' and 'bob' both hold what '/src/' and 'src/a.py' match, in one project." in problems


PRUNE = "INSERT INTO retention_passes DEFAULT VALUES"
FOUND: dict[str, tuple[list[str], str, list[str], bool]] = {  # statements, the check, what it says, whether it mends it
    "an agent above its ceiling": (
        ["UPDATE pool_agents SET preset = 'sandboxed' WHERE parent_id IS NULL"],
        "pool ceilings",
        ["1 agents"],
        False,
    ),
    "turns of an agent that ended": (
        ["UPDATE pool_agents SET ended_at = created_at WHERE parent_id IS NOT NULL"],
        "pool turns",
        [""],
        True,
    ),
    "a pass that was left open": ([PRUNE], "retention passes", [""], True),
    "rows that refer to nothing": (
        ["DELETE FROM agents WHERE agent_id = 'cleo'"],
        "references",
        ["20 rows of message_deliveries refer to rows of agents.*agent_register"],
        False,
    ),
    "a missing trigger": (["DROP TRIGGER events_refuse_update"], "schema", ["events_refuse_update is missing"], True),
    "a missing index": (["DROP INDEX agents_by_age"], "schema", ["agents_by_age is missing"], True),
    "an index on another column": (
        ["DROP INDEX agents_by_age", "CREATE INDEX agents_by_age ON agents (role)"],
        "schema",
        ["agents_by_age is on other columns"],
        True,
    ),
    "a trigger that was changed": (
        [
            "DROP TRIGGER events_refuse_update",
            "CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events BEGIN SELECT 1; END",
        ],
        "schema",
        ["The trigger events_refuse_update is not as it should be"],
        True,
    ),
    "a missing table": (["DROP TABLE artifacts"], "schema", ["The table artifacts is missing"], False),
    "a broken index": (
        [
            "PRAGMA writable_schema=ON",
            "UPDATE sqlite_master SET sql = replace(sql, 'created_at', 'role') WHERE name = 'agents_by_age'",
        ],
        "integrity",
        ["index"],
        True,
    ),
    "a store of a newer and of an older version": (
        ["UPDATE django_migrations SET name = '0999_later' WHERE app = 'compat'"],
        "version",
        ["The store was written by a newer version", "The store is of an older version.*next start of Nexus migrates"],
        False,
    ),
    "a store that this version cannot migrate": (
        ["UPDATE django_migrations SET name = '0002_earlier' WHERE app = 'topics'"],
        "version",
        ["The store is of an older version.*Start commit [0-9a-f]{8} of Nexus once"],
        False,
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_it_finds_what_is_wrong_and_mends_what_it_can(home: Home, findings: Findings, what: str) -> None:
    statements, check, said, mends = FOUND[what]

    def schema() -> dict[str, str]:
        return {name: " ".join(sql.split()) for name, sql in home.sql("SELECT name, sql FROM sqlite_master") if sql}

    before = schema()
    home.sql(*statements)
    found = [f"{each['problem']} {each['advice']}" for each in findings("--fix") if each["check"] == check]
    assert len(found) == len(said) and all(map(re.search, said, found)), found
    assert (findings() == []) is mends
    assert check != "schema" or not mends or schema() == before


def test_it_finds_a_project_whose_directory_was_renamed(home: Home, findings: Findings) -> None:
    home.sql("UPDATE workspaces SET root_realpath = '/gone/the shop' WHERE display_name IS NOT NULL")
    [found] = findings()
    assert (found["check"], found["level"]) == ("projects", "note")
    assert found["problem"].startswith("The directory /gone/the shop is gone, and 3 open handoffs, 2 reservations")
    assert "nexus workspaces move '/gone/the shop' NEW" in found["advice"]


@pytest.mark.usefixtures("runs_git")
def test_it_finds_a_guard_that_git_does_not_run(home: Home, findings: Findings, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    home.sql(f"UPDATE workspaces SET root_realpath = '{shop}' WHERE display_name IS NOT NULL")
    git(shop, "init", "--quiet")
    assert findings() == []  # it is not installed
    hooks.install(str(shop), str(home.database), "open", "")
    assert findings() == []
    (shop / ".git" / "hooks" / "pre-merge-commit").unlink()
    [found] = findings()
    assert (found["check"], found["level"]) == ("commit guard", "note")
    assert found["problem"] == f"The guard lacks {shop}/.git/hooks/pre-merge-commit."
    assert f"nexus guard install --repo {shop}" in found["advice"]
    git(shop, "config", "core.hooksPath", ".husky/_")
    (shop / ".git" / "hooks" / "post-commit").unlink()
    [found] = findings()
    assert found["problem"] == (
        f"git does not run the guard's hooks in {shop}: core.hooksPath (local) leads to {shop}/.husky/_."
    )
    git(shop, "config", "core.repositoryformatversion", "9")
    [found] = findings()
    assert "is in no git repository that can be used (Expected git repo version <= 1, found 9)." in found["problem"]


def test_it_closes_what_others_may_read(home: Home, findings: Findings) -> None:
    home.path.chmod(0o755)
    home.database.chmod(0o640)

    found = findings("--fix")
    assert [finding["check"] for finding in found] == ["permissions", "permissions"]
    assert (home.path.stat().st_mode & 0o777, home.database.stat().st_mode & 0o777) == (0o700, 0o600)
    assert findings() == []


def test_it_writes_a_log_back_that_grew_too_long(
    crashed: Home, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LOG_LIMIT", 1)

    [finding] = findings("--fix")
    assert finding["check"] == "log size"
    assert findings() == []
    assert crashed.sql("SELECT DISTINCT role FROM agents") == [("latest",)]


def test_it_deletes_what_a_killed_backup_left(home: Home, findings: Findings) -> None:
    for name, age in ((".old.partial", 7200), (".young.partial", 60)):
        (home.path / name).touch(mode=0o600)
        os.utime(home.path / name, (now().timestamp() - age,) * 2)

    assert [finding["check"] for finding in findings("--fix")] == ["leftovers"]
    assert {".old.partial", ".young.partial"} & entries(home.path) == {".young.partial"}


def test_it_finds_a_disk_with_little_room(home: Home, findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ROOM_LIMIT", 1 << 62)

    assert [finding["check"] for finding in findings()] == ["disk space"]


def test_it_finds_a_store_on_a_network_file_system(
    home: Home, findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "mountinfo"
    told.write_text(f"30 1 0:40 / {home.path.resolve()} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(files, "MOUNTS", told)

    (found,) = findings()
    assert found["check"] == "file system" and "(nfs4)" in found["problem"]


@pytest.mark.parametrize(("ahead", "level"), [(timedelta(hours=1), "note"), (timedelta(days=3), "fault")])
def test_it_finds_rows_from_the_future(home: Home, findings: Findings, ahead: timedelta, level: str) -> None:
    home.sql(f"UPDATE sessions SET last_heartbeat_at = '{(now() + ahead):%Y-%m-%d %H:%M:%S}' WHERE status = 'active'")

    assert [(finding["check"], finding["level"]) for finding in findings()] == [("clock", level)]


@pytest.mark.usefixtures("starts_processes")
def test_it_finds_two_servers_on_one_store(home: Home, findings: Findings) -> None:
    hold = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(home.database), "serve"]
    servers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for server in servers:
            assert server.stdout
            server.stdout.readline()
        [finding] = findings()
    finally:
        for server in servers:
            server.communicate()
    assert finding["check"] == "servers"
    assert all(str(server.pid) in finding["problem"] for server in servers)


def empty(home: Home) -> None:
    home.database.write_bytes(b"")


def cut_short(home: Home) -> None:
    os.truncate(home.database, home.database.stat().st_size - 20_000)


def flip_a_page(home: Home) -> None:
    page = home.database.read_bytes().index(b"handoff.completed") // 4096  # one of the events
    with home.database.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xa5" * 4096)


def overwrite_the_header(home: Home) -> None:
    with home.database.open("r+b") as file:
        file.write(b"not SQLite")


def lose_the_log(home: Home) -> None:
    (home.path / "nexus.db-shm").write_bytes(b"\0" * 32768)
    (home.path / "nexus.db-shm").chmod(0o600)


DAMAGE = {
    "empty": (empty, {"file"}),
    "cut short": (cut_short, {"file", "integrity"}),
    "a page flipped": (flip_a_page, {"integrity"}),
    "not SQLite": (overwrite_the_header, {"file"}),
    "its log gone": (lose_the_log, {"log"}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_it_names_the_newest_backup_of_a_damaged_store_and_touches_nothing(
    home: Home, findings: Findings, nexus: Nexus, damage: str
) -> None:
    nexus("backup", str(home.path / "kept.db"))
    (home.path / "backups").mkdir(mode=0o700)
    (home.path / "kept.db").rename(home.path / "backups" / "kept.db")
    inflict, checks = DAMAGE[damage]
    inflict(home)
    before = {path.name: path.read_bytes() for path in home.path.iterdir() if path.is_file()}

    found = {finding["check"]: finding for finding in findings()}

    assert set(found) == checks
    assert damage == "its log gone" or all("kept.db" in finding["advice"] for finding in found.values())
    assert {path.name: path.read_bytes() for path in home.path.iterdir() if path.is_file()} == before


def test_it_goes_on_without_a_lost_log_when_told(home: Home, findings: Findings) -> None:
    lose_the_log(home)

    assert [finding["fixed"] is not None for finding in findings("--fix")] == [True]
    assert findings() == []


def test_it_names_clients_files_that_cannot_be_read(
    home: Home, tmp_path: Path, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in (".codex", ".cursor", ".gemini"):
        (tmp_path / name).mkdir()
    (tmp_path / ".codex/config.toml").write_text("model = ")
    (tmp_path / ".cursor/mcp.json").write_bytes("{}".encode("utf-16"))
    (tmp_path / ".gemini/settings.json").write_text("{} // fine")
    plugin = tmp_path / "nexus.js"
    plugin.write_text("export default {}")
    record = Record(str(tmp_path), {str(plugin): Written(None, plugin.read_text(), [("whole", "opencode")], [])})
    (home.path / "setup").mkdir()
    setup_record.save(home.path, record)
    found = [each for each in findings() if each["check"] == "clients' files"]
    assert [each["problem"].partition(" is ")[0] for each in found] == [
        str(tmp_path / ".codex/config.toml"),
        str(tmp_path / ".cursor/mcp.json"),
    ]
    assert "save it as UTF-8" in found[1]["problem"] and "nexus setup --check" in found[0]["advice"]


# The machine


def test_it_names_hooks_and_commits_on_record(home: Home, findings: Findings) -> None:
    hook_state.record_fault(home.path, "ben", "/work/shop", "no answer within 5 s")
    hook_state.record_fault(home.path, "ben", "/work/shop", "it is no database", passed="commit")
    found = [each for each in findings() if each["check"] == "hooks"]
    assert sorted(each["problem"].partition(":")[0] for each in found) == [
        "A commit of ben was not checked, in /work/shop",
        "The hook of ben fails, in /work/shop",
    ]
    assert all("nexus setup --check" in each["advice"] for each in found)


def test_it_names_packages_that_have_our_names(
    home: Home, findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop" / "inbox").mkdir(parents=True)
    (tmp_path / "shop" / "handoffs.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/shop:{CODE}")
    [found] = [each for each in findings() if each["check"] == "imports"]
    assert found["problem"].startswith(f"{tmp_path}/shop, on PYTHONPATH") and "handoffs, inbox" in found["problem"]
    assert found["level"] == "note"


def test_it_names_a_malformed_proxy_and_a_file_that_holds_no_certificates(
    home: Home, findings: Findings, kept_variables: None, tmp_path: Path
) -> None:
    for name in outward.VARIABLES:
        os.environ.pop(name, None)
    os.environ["HTTPS_PROXY"] = "http://ann:sec[ret@proxy.example:3128"
    [found] = [each for each in findings() if each["check"] == "ways out"]
    assert "malformed" in found["problem"] and "%5B" in found["advice"] and "ret@" not in str(found)
    del os.environ["HTTPS_PROXY"]
    (tmp_path / "ca.der").write_bytes(b"0\x82")
    for place in (tmp_path, tmp_path / "ca.der"):
        os.environ["REQUESTS_CA_BUNDLE"] = str(place)
        [found] = [each for each in findings() if each["check"] == "ways out"]
        assert f"The certificates in {place} cannot be read (" in found["problem"]


def test_it_names_a_proxy_without_certificates_and_certificates_that_are_not_there(
    home: Home, findings: Findings, kept_variables: None
) -> None:
    for name in outward.VARIABLES:
        os.environ.pop(name, None)
    assert [each for each in findings() if each["check"] == "ways out"] == []
    for os.environ["HTTPS_PROXY"] in ("ann:secret@proxy.example:3128", "http://ann:secret@proxy.example:3128"):
        [found] = [each for each in findings() if each["check"] == "ways out"]
        assert (found["level"], "proxy.example:3128" in found["problem"]) == ("note", True)
        assert "secret" not in str(found) and "SSL_CERT_FILE" in found["advice"]
    os.environ["CURL_CA_BUNDLE"] = "/nowhere.pem"
    [found] = [each for each in findings() if each["check"] == "ways out"]
    assert found["level"] == "fault" and "/nowhere.pem" in found["problem"] and "CURL_CA_BUNDLE" in found["advice"]

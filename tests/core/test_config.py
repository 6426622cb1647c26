"""Settings: flag over environment over default, and nothing invalid ever passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.config import LARGEST, TABLE, flag, resolve, variable
from nexus.core.operations.errors import Code, NexusError
from nexus_site.launch import take_flags
from tests.acceptance.processes import nexus

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = {  # the contract's defaults and minimums
    "busy_timeout_ms": (5000, 0),
    "poll_interval_ms": (200, 1),
    "max_wait_timeout_seconds": (30, 0),
    "handoff_lease_ttl_seconds": (300, 1),
    "max_inline_bytes": (65_536, 1),
    "inbox_lease_ttl_seconds": (300, 1),
    "session_stale_ttl_seconds": (60, 1),
    "presence_ttl_seconds": (1800, 1),
    "session_reap_seconds": (86_400, 1),
    "max_shared_md_events": (1000, 1),
    "max_event_limit": (1000, 1),
    "retention_events_keep_days": (30, 0),
    "retention_read_deliveries_keep_days": (14, 0),
    "retention_closed_sessions_keep_days": (7, 0),
}


def refusal(environ: dict[str, str], flags: dict[str, str] | None = None) -> str:
    with pytest.raises(NexusError) as caught:
        resolve(environ, flags or {})
    assert caught.value.code == Code.CONFIG_ERROR
    return caught.value.message


def resolved(environ: dict[str, str] | None = None, flags: dict[str, str] | None = None) -> Any:
    return resolve(environ or {}, flags or {}).settings


def test_it_has_the_contracts_defaults() -> None:
    found = resolved()
    assert {name: getattr(found, name) for name in NUMBERS} == {name: default for name, (default, _) in NUMBERS.items()}
    assert (found.trust_mode, found.auto_prune_on_start) == ("open", False)
    assert found.home == Path.home() / ".nexus"
    assert found.database == Path.home() / ".nexus" / "nexus.db"


def test_it_has_a_variable_a_flag_and_a_sentence_for_every_setting() -> None:
    assert variable("trust_mode") == "NEXUS_TRUST_MODE"
    assert flag("trust_mode") == "--trust-mode"
    assert {*NUMBERS, "home", "db_path", "trust_mode", "auto_prune_on_start"} <= set(TABLE)
    assert all(field.help.endswith(".") for field in TABLE.values())


def test_it_prefers_the_flag_to_the_environment_to_the_default() -> None:
    environ = {"NEXUS_MAX_EVENT_LIMIT": "7", "NEXUS_TRUST_MODE": "strict"}
    resolved = resolve(environ, {"max_event_limit": "9"})
    assert (resolved.settings.max_event_limit, resolved.settings.trust_mode) == (9, "strict")
    assert resolved.sources["max_event_limit"] == "flag"
    assert resolved.sources["trust_mode"] == "environment"
    assert resolved.sources["poll_interval_ms"] == "default"
    assert "--max-event-limit" in refusal({"NEXUS_MAX_EVENT_LIMIT": "7"}, {"max_event_limit": "x"})


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_it_holds_each_number_to_its_bounds_inclusively(name: str) -> None:
    minimum, maximum = NUMBERS[name][1], TABLE[name].maximum
    assert TABLE[name].minimum == minimum
    assert maximum <= LARGEST
    for text in (str(minimum), str(maximum)):
        assert getattr(resolved({variable(name): text}), name) == int(text)
    for text in (str(minimum - 1), str(maximum + 1)):
        assert variable(name) in refusal({variable(name): text})


def test_it_names_no_bound_of_the_machine() -> None:
    assert "use a number of 1 or more" in refusal({"NEXUS_MAX_EVENT_LIMIT": "0"})
    for text in (str(LARGEST + 1), "9" * 18):
        assert "use a smaller number" in refusal({"NEXUS_MAX_EVENT_LIMIT": text})
        assert str(LARGEST) not in refusal({"NEXUS_MAX_EVENT_LIMIT": text})
    assert "use a number from 0 to 86400" in refusal({"NEXUS_MAX_WAIT_TIMEOUT_SECONDS": "86401"})


def test_it_refuses_what_is_no_whole_number() -> None:
    for text in ("", " ", "x", "1.0", "1e3", "0x10", "1_000", " 5", "5 ", "٣", "9" * 5000, "5\x00"):
        assert len(refusal({"NEXUS_MAX_EVENT_LIMIT": text[:100]})) < 500
        assert refusal({}, {"max_event_limit": text})


@given(st.text(max_size=20))
def test_it_answers_any_text_with_a_number_within_bounds_or_a_config_error(text: str) -> None:
    try:
        found = resolved({"NEXUS_MAX_WAIT_TIMEOUT_SECONDS": text})
    except NexusError as error:
        assert error.code == Code.CONFIG_ERROR
    else:
        assert found.max_wait_timeout_seconds == int(text)
        assert 0 <= found.max_wait_timeout_seconds <= 86_400


@pytest.mark.parametrize(("value", "words"), [(True, "true 1 yes on TRUE Yes"), (False, "false 0 no off Off")])
def test_it_reads_the_words_for_true_and_false(value: bool, words: str) -> None:
    for text in words.split():
        assert resolved({"NEXUS_AUTO_PRUNE_ON_START": text}).auto_prune_on_start is value
    for text in ("", "2", "t", "y", "true ", "enabled"):
        assert refusal({"NEXUS_AUTO_PRUNE_ON_START": text})


def test_it_knows_two_trust_modes() -> None:
    for text in ("", "closed", "Strict", "strict ", "open,strict"):
        assert "open, strict" in refusal({"NEXUS_TRUST_MODE": text})


def test_it_expands_paths_and_derives_the_store_from_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert resolved({"NEXUS_HOME": "~/hub"}).database == tmp_path / "hub" / "nexus.db"
    assert resolved({"NEXUS_HOME": "hub"}).home == tmp_path / "hub"
    assert resolved({"NEXUS_HOME": "~/hub", "NEXUS_DB_PATH": "~/other.db"}).database == tmp_path / "other.db"


def test_it_refuses_what_is_no_path() -> None:
    for name in ("NEXUS_HOME", "NEXUS_DB_PATH"):
        for text in ("", "  ", "a\x00b", "~no-such-user-here/x"):
            assert name in refusal({name: text})


def test_it_splits_flags_from_a_commands_own_arguments() -> None:
    flags, rest = take_flags(["--home", "/a", "--dry-run", "--trust-mode=strict", "here", "--db-path=x=y", "--home=/b"])
    assert flags == {"home": "/b", "trust_mode": "strict", "db_path": "x=y"}
    assert rest == ["--dry-run", "here"]

    assert take_flags(["--max-event-limit", "-5"]) == ({"max_event_limit": "-5"}, [])
    for arguments in (["--home"], ["--home", "--trust-mode", "open"], ["--trust-mode"]):
        with pytest.raises(NexusError) as caught:
            take_flags(arguments)
        assert caught.value.code == Code.CONFIG_ERROR


def test_retention_keeps_what_a_replaced_setting_kept_for_longer() -> None:
    turns, topics = "NEXUS_RETENTION_ENDED_POOL_TURNS_KEEP_DAYS", "NEXUS_RETENTION_CLOSED_TOPICS_KEEP_DAYS"
    for environ, days in (
        ({}, 90),
        ({turns: "7"}, 90),
        ({turns: "3650", topics: "365"}, 3650),
        ({turns: "99999"}, 36_500),
        ({turns: "for ever", topics: "365"}, 365),
        ({turns: "3650", "NEXUS_RETENTION_KEEP_DAYS": "30"}, 30),
        ({"NEXUS_RETENTION_EXPIRED_TASKS_KEEP_DAYS": "3650"}, 90),
    ):
        assert resolved(environ).retention_keep_days == days, environ


# Through a real process


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("arguments", "environ", "named"),
    [
        (["--max-event-limit"], {}, "--max-event-limit"),
        (["--bogus", "1"], {}, "--bogus"),
        (["--max-event"], {}, "--max-event"),
        (["stray"], {}, "stray"),
        ([], {"NEXUS_BUSY_TIMEOUT_MS": "soon"}, "NEXUS_BUSY_TIMEOUT_MS"),
        ([], {"NEXUS_API_KEY": "nxs_unknown"}, "NEXUS_API_KEY"),
    ],
)
def test_it_stops_before_anything_is_written(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], named: str
) -> None:
    ended = nexus(tmp_path / "home", "runmcp", *arguments, **environ)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("[nexus] CONFIG_ERROR: ")
    assert named in ended.stderr and "nxs_unknown" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "NEXUS_API_KEY" in environ or list(tmp_path.iterdir()) == [], "a key is looked up in the store"


@pytest.mark.usefixtures("starts_processes")
def test_it_tells_of_every_setting_in_its_help(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "runmcp", "--help-all")
    assert ended.returncode == 0
    for name, field in TABLE.items():
        assert flag(name) in ended.stdout
        assert variable(name) in ended.stdout.replace("\n", "")
        assert field.help.split()[0] in ended.stdout
    assert not {"None]", "]", "True]", "False]"} & set(ended.stdout.split()), "Python's words are nobody's defaults"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("starts_processes")
def test_a_variable_that_is_no_setting_any_more_is_named_once(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "settings", "list", NEXUS_POOL_HANG_SECONDS="soon", NEXUS_NATS_URL="nats://h")
    assert (ended.returncode, ended.stderr) == (
        0,
        "[nexus] NEXUS_POOL_HANG_SECONDS is no setting any more: it is always 30.\n"
        "[nexus] NEXUS_NATS_URL is no setting any more: processes at one database tell each other by NOTIFY.\n",
    )

"""The token's file: its owner's alone, whole at any moment, and nothing else is taken for one."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.client import (
    API_KEY_PREFIX,
    ServerTokenManager,
    UnsafeToken,
    discover_rpc_token,
    generate_api_key,
    validate_api_key,
)
from nexus.client.tokens import FORM, NEXUS3_VARIABLE, VARIABLE, read_token


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(NEXUS3_VARIABLE, raising=False)


def test_it_makes_tokens_of_32_bytes_each_another() -> None:
    tokens = {generate_api_key() for _ in range(100)}
    assert len(tokens) == 100 and all(FORM.fullmatch(token) and len(token) == 47 for token in tokens)
    assert all(token.startswith(API_KEY_PREFIX) for token in tokens)


def test_it_knows_its_token_and_no_other() -> None:
    token = generate_api_key()
    assert validate_api_key(token, token)
    for other in ("", token[:-1], token + "\n", token.upper(), "nxk_é", "\udcff"):
        assert not validate_api_key(other, token)


@pytest.mark.parametrize(("port", "name"), [(8765, "rpc.token"), (8766, "rpc-8766.token")])
def test_it_names_the_file_by_the_port(tmp_path: Path, port: int, name: str) -> None:
    assert ServerTokenManager(port, tmp_path).token_path == tmp_path / name


def test_it_is_fresh_at_each_start_and_for_its_owner_alone(tmp_path: Path) -> None:
    tokens = ServerTokenManager(8765, tmp_path / "home")
    before = os.umask(0)
    try:
        first, second = tokens.generate_fresh(), tokens.generate_fresh()
    finally:
        os.umask(before)
    assert first != second and tokens.load() == second
    assert stat.S_IMODE(tokens.token_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.home.stat().st_mode) == 0o700
    assert names(tokens.home) == ["rpc.token"]
    tokens.delete()
    tokens.delete()
    assert tokens.load() is None and names(tokens.home) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o602])
def test_it_refuses_a_file_that_others_may_touch(tmp_path: Path, mode: int) -> None:
    tokens = ServerTokenManager(8765, tmp_path)
    token = tokens.generate_fresh()
    tokens.token_path.chmod(mode)
    with pytest.raises(UnsafeToken, match="chmod 600"):
        tokens.load()
    with pytest.raises(UnsafeToken):
        discover_rpc_token(8765, tmp_path)
    assert discover_rpc_token(8765, tmp_path, strict_permissions=False) == token


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_it_refuses_a_file_of_another_user(tmp_path: Path) -> None:
    tokens = ServerTokenManager(8765, tmp_path)
    tokens.generate_fresh()
    os.chown(tokens.token_path, 65_534, 65_534)
    with pytest.raises(UnsafeToken):
        tokens.load()


def test_it_reads_no_link_no_pipe_and_no_directory(tmp_path: Path) -> None:
    real = ServerTokenManager(8765, tmp_path)
    real.generate_fresh()
    link, pipe, directory = (tmp_path / name for name in ("link", "pipe", "directory"))
    link.symlink_to(real.token_path)
    os.mkfifo(pipe, 0o600)  # to open it would wait for a writer
    directory.mkdir()
    assert [read_token(path) for path in (link, pipe, directory, tmp_path / "none")] == [None] * 4


@given(st.one_of(st.binary(max_size=100), st.from_regex(rb"\s*nxk_[A-Za-z0-9_-]{40,46}\s*", fullmatch=True)))
def test_it_takes_nothing_else_for_a_token(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(content)
        token = read_token(Path(file.name))
    expected = content.strip()
    assert (token is not None) == (FORM.fullmatch(expected.decode("latin-1")) is not None)
    assert token is None or token.encode() == expected


def test_it_reads_no_more_than_a_token_takes(tmp_path: Path) -> None:
    huge = tmp_path / "rpc.token"
    with huge.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(2**40)  # of zeros, which no disk holds
    assert read_token(huge) is None


def test_who_reads_meanwhile_sees_a_whole_token(tmp_path: Path) -> None:
    tokens = ServerTokenManager(8765, tmp_path)
    tokens.generate_fresh()
    done = threading.Event()

    def read() -> set[str | None]:
        seen: set[str | None] = set()
        while not done.is_set():
            seen.add(tokens.load())
        return seen

    with ThreadPoolExecutor(2) as readers:
        seen = [readers.submit(read) for _ in range(2)]
        written = {tokens.generate_fresh() for _ in range(300)}
        done.set()
    assert None not in seen[0].result() | seen[1].result() and len(written) == 300


def test_one_of_two_saves_a_first_token(tmp_path: Path) -> None:
    tokens = ServerTokenManager(8765, tmp_path)
    gate = threading.Barrier(8)

    def save() -> str | None:
        token = generate_api_key()
        gate.wait()
        try:
            tokens.save(token, overwrite=False)
        except FileExistsError:
            return None
        return token

    with ThreadPoolExecutor(8) as savers:
        saved = [token for token in savers.map(lambda _: save(), range(8)) if token]
    assert saved == [tokens.load()] and names(tmp_path) == ["rpc.token"]


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    tokens = ServerTokenManager(8765, tmp_path)
    tokens.token_path.mkdir()
    with pytest.raises(OSError, match=r"rpc\.token"):
        tokens.generate_fresh()
    assert names(tmp_path) == ["rpc.token"]


def test_it_looks_in_the_environment_then_at_the_port_then_at_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert discover_rpc_token(9000, tmp_path) is None
    default = ServerTokenManager(8765, tmp_path).generate_fresh()
    assert discover_rpc_token(9000, tmp_path) == default
    own = ServerTokenManager(9000, tmp_path).generate_fresh()
    assert discover_rpc_token(9000, tmp_path) == own
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path))
    assert discover_rpc_token(9000) == own
    monkeypatch.setenv(VARIABLE, "nxk_given")
    assert discover_rpc_token(9000, tmp_path) == "nxk_given"


def test_it_takes_nexus3s_token_where_ours_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ours, theirs = tmp_path / ".nexus", tmp_path / ".nexus3"
    default = ServerTokenManager(8765, theirs).generate_fresh()
    assert discover_rpc_token(9000, ours) == default
    of_port = ServerTokenManager(9000, theirs).generate_fresh()
    assert (discover_rpc_token(9000, ours), discover_rpc_token(8765, ours)) == (of_port, default)
    monkeypatch.setenv(NEXUS3_VARIABLE, "nxk_given")
    assert discover_rpc_token(9000, ours) == "nxk_given"
    own = ServerTokenManager(8765, ours).generate_fresh()
    assert discover_rpc_token(9000, ours) == own
    (theirs / "rpc.token").chmod(0o644)
    monkeypatch.delenv(NEXUS3_VARIABLE)
    assert discover_rpc_token(8765, ours) == own
    (ours / "rpc.token").unlink()
    with pytest.raises(UnsafeToken, match=r"\.nexus3/rpc\.token"):
        discover_rpc_token(8765, ours)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]

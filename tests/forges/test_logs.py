"""The end of a log, whatever its size and pace."""

from __future__ import annotations

from itertools import repeat

import pytest

from nexus.forges import protocol
from nexus.forges.protocol import MAX_LOG, end_of


def test_it_is_the_end() -> None:
    assert end_of([b"start\n" * 9_000, "caf\u00e9".encode(), b"\xff"]).endswith("start\ncaf\u00e9\ufffd")
    assert len(end_of([b"x" * 50_000])) == MAX_LOG and end_of([]) == ""


def test_a_log_without_an_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LOG_BYTES", 1_000)
    assert end_of(repeat(b"x")) == "x" * 1_001


def test_a_log_that_comes_slowly_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LOG_SECONDS", 0)
    assert end_of(repeat(b"x")) == "x"

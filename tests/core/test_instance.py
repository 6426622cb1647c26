"""The lock of a home's server, while others ask whether there is one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from nexus.core import instance


class Paused(FileLock):
    """A lock whose first holder keeps the server's lock until somebody else has tried to take one."""

    held, tried = threading.Event(), threading.Event()

    def _acquire(self) -> None:
        super()._acquire()
        if self.held.is_set():
            self.tried.set()

    def release(self, force: bool = False) -> None:
        if Path(self.lock_file).name == instance.LOCK and self.is_locked and not self.held.is_set():
            self.held.set()
            self.tried.wait(60)
        super().release(force)


def test_a_look_is_not_taken_for_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = instance.Holder(1, "127.0.0.1", 8420)
    (tmp_path / instance.HOLDER).write_bytes(instance._spelled(killed))
    monkeypatch.setattr(instance, "FileLock", Paused)
    with ThreadPoolExecutor(1) as other:
        looking = other.submit(instance.running, tmp_path)
        assert Paused.held.wait(60)
        with instance.only_server(tmp_path) as announce:
            announce("127.0.0.1", 8421)
            server = instance.running(tmp_path)
        assert looking.result() is None
    assert server is not None and server.port == 8421

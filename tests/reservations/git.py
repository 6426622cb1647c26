"""Real repositories, and reservations put straight into a store: what the guard meets."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from coordination.paths import workspace_id_of
from nexus.core.database.keys import number_of
from nexus.reservations import patterns
from nexus.reservations.guard import hooks, repository
from nexus.reservations.guard.holdings import opened
from tests.acceptance.hub import START_SECONDS

_numbers = count(1)
_place = tempfile.TemporaryDirectory(prefix="nexus-repository-")
TEMPLATE = Path(_place.name, "first")
EVERYBODY = json.dumps([{"agent_id": agent_id} for agent_id in ("ann", "ben", "cat", None)])


class Repo:
    """A work tree; `git` runs in it as the person or agent that `environ` says."""

    begun_by: tuple[str, ...] = ()  # the words of a program that starts git

    def __init__(self, top: Path, **environ: str) -> None:
        self.top, self.environ = top, environ

    @classmethod
    def make(cls, top: Path) -> Repo:
        """A new repository with two files: a copy of the first one that this process made."""
        if not TEMPLATE.exists():
            cls._made(TEMPLATE)
        shutil.copytree(TEMPLATE, top, symlinks=True)
        return cls(top)

    @classmethod
    def _made(cls, top: Path) -> None:
        top.mkdir(parents=True)
        repo = cls(top)
        repo.ok("init", "-q", "-b", "main")
        for name in ("user.name", "user.email"):
            repo.ok("config", name, "x@example.org")
        repo.write("a.py", "src/b.py")
        repo.ok("add", ".")
        repo.ok("commit", "-qm", "first")

    def of(self, agent_id: str, top: Path | None = None) -> Repo:
        """The same for an agent, perhaps in another work tree."""
        return Repo(top or self.top, NEXUS_AGENT_ID=agent_id)

    def git(self, *arguments: str | bytes, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run git to its end."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "NEXUS_"))}
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_EDITOR": "true"}
        return subprocess.run(
            [*self.begun_by, "git", *arguments],
            cwd=self.top,
            env={**clean, **alone, **self.environ, **environ},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=START_SECONDS,
            check=False,
        )

    def ok(self, *arguments: str | bytes, **environ: str) -> str:
        """What git prints, having succeeded."""
        done = self.git(*arguments, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, *paths: str) -> None:
        """Change files, or make them."""
        for path in paths:
            file = self.top / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as opened:
                opened.write(f"line {next(_numbers)}\n")

    def change(self, *paths: str) -> None:
        """Change files, and stage them."""
        self.write(*paths)
        self.ok("add", "--", *paths)

    @property
    def head(self) -> str:
        return self.ok("rev-parse", "HEAD").strip()


class Held:
    """A store's file, and a hand that reserves in it what the test likes."""

    def __init__(self, home: Path) -> None:
        self.home, self.file = home, home / "nexus.db"

    def guard(self, repo: Repo, unreadable: str = "open") -> None:
        """Install the hooks."""
        hooks.install(str(repo.top), str(self.file), unreadable, f"--home {self.home}")

    def reserve(self, agent_id: str, root: Path, *globs: str, exclusive: bool = True, **columns: Any) -> None:
        """Reserve for a quarter of an hour; `columns` overwrite what the rows hold.

        A refusal of everybody is recorded already, or each one would start Nexus to record it (`refused="[]"`).
        """
        now, project = datetime.now(UTC), os.path.realpath(root)
        workspace = workspace_id_of(project)
        with closing(sqlite3.connect(self.file)) as store, store:
            store.execute(
                "INSERT OR IGNORE INTO workspaces (workspace_id, number, root_realpath, created_at, last_seen_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (workspace, number_of(workspace), project, _text(now), _text(now)),
            )
            for glob in globs:
                pattern = patterns.normalized(glob)
                row = {
                    "reservation_id": f"rsv_{next(_numbers):09}",
                    "workspace_id": workspace,
                    "agent_id": agent_id,
                    "pattern": pattern,
                    "place": patterns.prefix_key(pattern),
                    "extension": patterns.extension(pattern),
                    "exclusive": exclusive,
                    "item": 0,
                    "refused": EVERYBODY,
                    "asked_by": "[]",
                    "seconds": 900,
                    "created_at": _text(now),
                    "expires_at": _text(now + timedelta(minutes=15)),
                    **columns,
                }
                sql = f"INSERT INTO file_reservations ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
                store.execute(sql, tuple(row.values()))

    def in_the_way(self, agent_id: str, top: Path, *paths: str) -> list[str]:
        """The files that others hold, as the guard finds them once git has named what changes."""
        here = repository.at(os.path.realpath(top))
        with opened(str(self.file)) as store:
            return [each.path for each in store.conflicts(here, store.projects(here), agent_id, paths)]

    def release(self, agent_id: str) -> None:
        """End what an agent holds."""
        with closing(sqlite3.connect(self.file)) as store, store:
            store.execute(
                "UPDATE file_reservations SET released_at = ?, outcome = 'released' WHERE agent_id = ?",
                (_text(datetime.now(UTC)), agent_id),
            )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


PAST = _text(datetime.now(UTC) - timedelta(minutes=1))

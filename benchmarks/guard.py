"""What a commit pays for the guard: whole runs of git's hook, and of `git commit` with it and without.

    python -m benchmarks.guard

Budget: 100 ms for the hook, without a hub, with 5,000 reservations of others.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

RESERVATIONS, COMMITS, STAGED = 5_000, 40, 20_000


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        home, repo = Path(place, "home"), Path(place).resolve() / "repo"
        os.environ.update(NEXUS_HOME=str(home), DJANGO_SETTINGS_MODULE="nexus_site.settings_agent")
        for name in ("NEXUS_AGENT_ID", "NEXUS_OVERRIDE"):
            os.environ.pop(name, None)
        os.environ["NEXUS_AGENT_ID"] = "ben"
        import django

        django.setup()
        from nexus.core.database import store
        from nexus.reservations.guard import hooks

        store().prepare()
        repo.mkdir()
        git(repo, "init", "-q")
        for name in ("user.name", "user.email"):
            git(repo, "config", name, "x")
        bare = commits(repo)
        hooks.install(str(repo), str(home / "nexus.db"), "open", "")
        print(f"{COMMITS} runs each, medians; a git commit without the guard takes {bare * 1000:.0f} ms")
        report("nothing reserved", repo, bare)
        reserve(repo)
        report(f"{RESERVATIONS} reservations", repo, bare)
        stage(repo)
        print(hooked(f"and {STAGED} staged files", repo, 5))


def report(what: str, repo: Path, bare: float) -> None:
    (repo / "file.py").write_text(what)
    git(repo, "add", ".")
    line = hooked(what, repo, COMMITS)
    whole = commits(repo)
    print(f"{line}   git commit {whole * 1000:4.0f} ms, {whole / bare:.1f} times as long")


def hooked(what: str, repo: Path, times: int) -> str:
    """What the hook takes: by the clock, and of the processor, which tells more on a busy machine."""
    hook = [str(repo / ".git" / "hooks" / "pre-commit")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = statistics.median(timed(lambda: subprocess.run(hook, cwd=repo, check=True)) for _ in range(times))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / times
    return f"{what:<26} hook {taken * 1000:4.0f} ms, at work for {worked * 1000:4.0f} ms"


def commits(repo: Path) -> float:
    """Seconds of a commit of one file."""
    taken = []
    for number in range(COMMITS):
        (repo / "file.py").write_text(f"{number} {time.time_ns()}")
        git(repo, "add", ".")
        taken.append(timed(lambda: git(repo, "commit", "-qm", "x")))
    return statistics.median(taken)


def reserve(repo: Path) -> None:
    """Files and globs of all kinds that others hold."""
    from coordination.services import workspaces
    from nexus.core.clock import now
    from nexus.core.database import write
    from nexus.reservations import patterns
    from nexus.reservations.models import Reservation

    moment = now()
    place = workspaces.resolve(project_root=str(repo), display_name=None)
    with write():
        globs = [f"/src/{number}/*.py" for number in range(RESERVATIONS // 2)]
        globs += [f"/docs/{number}.md" for number in range(RESERVATIONS - len(globs) - 10)]
        globs += [f"*.generated{number}" for number in range(10)]
        Reservation.objects.bulk_create(
            Reservation(
                reservation_id=f"rsv_{number:09}",
                workspace_id=place.workspace_id,
                agent_id=f"agent{number % 50}",
                pattern=patterns.normalized(glob),
                place=patterns.prefix_key(patterns.normalized(glob)),
                extension=patterns.extension(patterns.normalized(glob)),
                exclusive=True,
                item=0,
                seconds=3600,
                created_at=moment,
                expires_at=moment + timedelta(hours=1),
            )
            for number, glob in enumerate(globs)
        )


def stage(repo: Path) -> None:
    blob = subprocess.run(
        ["git", "hash-object", "-w", "file.py"], cwd=repo, check=True, capture_output=True, text=True
    ).stdout.strip()
    listed = "".join(f"100644 {blob}\tmany/{number % 100}/{number}.py\n" for number in range(STAGED))
    subprocess.run(["git", "update-index", "--index-info"], cwd=repo, check=True, input=listed, text=True)


def git(repo: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repo, check=True)


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

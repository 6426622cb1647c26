"""From issue to merged: six issues of a forge, three agents in worktrees, the merge queue, and a hub that is killed.

Nothing but the hub remembers how far a task is: each look reads that anew, and does the next step as an operator would.
So a call that a kill cut off is made again only if its effect is missing.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import Pool
from tests.forges.github_server import GitHub, Row

RUNNERS = Path(__file__).with_name("merging.toml").read_text()
BUILDERS = tuple(f"builder-{number}" for number in range(1, 4))
CHECKS = "[checks]\ntests = \"! grep -rnw TODO --include='*.txt' .\"\n"
LOOK_SECONDS, LONGEST_PAUSE = 0.5, 3.0  # between two looks; while nothing moves, the longer the rarer
QUIET_SECONDS = 400.0  # without any progress, after which it counts as hung: the longest lease of a killed hub is 60 s
LIVE, OVER = ("queued", "running"), 10  # the stage of a task that is over


@dataclass
class Task:
    """An issue, the line that it asks for, and how far it is."""

    number: int
    line: str
    file: str
    accepted: str  # the line that is in the target branch at the end; empty: an operator refuses the work
    remark: str = ""  # what an operator asks for instead, in a comment on that line
    handoff: str = ""
    stage: int = 0

    @property
    def title(self) -> str:
        return f"Write {self.line} into {self.file}"

    @property
    def builder(self) -> str:
        return BUILDERS[(self.number - 1) % len(BUILDERS)]


def tasks() -> list[Task]:
    """Return six tasks: 2 and 3 change the same line, 4 is commented on, 5 fails its checks at first, 6 is refused."""
    wanted = [
        ("apples: 3", "apples.txt"),
        ("soup: 4", "soup.txt"),
        ("soup: 5", "soup.txt"),
        ("dates: 6", "dates.txt"),
        ("eggs: TODO", "eggs.txt"),
        ("poison: 7", "poison.txt"),
    ]
    accepted = {4: "dates: 6 boxes", 5: "eggs: 12", 6: ""}
    return [
        Task(number, line, file, accepted.get(number, line), accepted[4] if number == 4 else "")
        for number, (line, file) in enumerate(wanted, 1)
    ]


class Stage:
    """A hub that can be killed and started again over the same home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.start()

    def kill(self) -> None:
        self.pool.hub.stop(signal.SIGKILL)

    def start(self) -> None:
        self.pool = Pool(self.home, runners=RUNNERS)


class Cut(Exception):
    """The hub was killed during a call."""


class Refused(Exception):
    """The hub refused a call."""


@dataclass(frozen=True)
class Kill:
    """When the hub is killed: at this progress (of 60), so many seconds later, in the midst of whatever goes on."""

    progress: int
    seconds: float = 0.0


@dataclass
class Rehearsal:
    """One play, and the operator in it."""

    stage: Stage
    forge: GitHub
    project: Path
    remote: Path
    kills: list[Kill]
    tasks: list[Task] = field(default_factory=tasks)
    refusals: dict[str, int] = field(default_factory=dict)
    killed: int = 0

    def play(self) -> None:
        """Play it to its end."""
        self._begin()
        killer: threading.Thread | None = None
        progress, moved_at = 0, time.monotonic()
        while any(task.stage < OVER for task in self.tasks):
            try:
                for task in self.tasks:
                    self._advance(task)
            except Cut:
                assert killer is not None, "nobody killed the hub"
                killer.join()
                killer = None
                self.stage.start()
            now = sum(task.stage for task in self.tasks)
            if now > progress:
                progress, moved_at = now, time.monotonic()
            stages = {task.number: task.stage for task in self.tasks}
            still = time.monotonic() - moved_at
            assert still < QUIET_SECONDS, f"nothing goes on: {stages}; refused: {self.refusals}; {self._unfinished()}"
            if killer is None and self.kills and progress >= self.kills[0].progress:
                killer = threading.Thread(target=self._kill, args=(self.kills.pop(0).seconds,))
                killer.start()
            time.sleep(min(LOOK_SECONDS + still / 5, LONGEST_PAUSE))
        if killer is not None:
            killer.join()
            self.stage.start()

    def _kill(self, seconds: float) -> None:
        time.sleep(seconds)
        self.stage.kill()
        self.killed += 1

    def _begin(self) -> None:
        """Make the repository and its remote, connect the forge, review the checks, create the agents."""
        self.project.mkdir()
        self.remote.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        (self.project / "soup.txt").write_text("soup: 0\n")
        (self.project / "nexus.toml").write_text(CHECKS)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Begin")
        self.git("init", "--quiet", "--bare", str(self.remote))
        self.git("-C", str(self.remote), "config", "http.receivepack", "true")
        self.git("push", "--quiet", str(self.remote), "main")
        where = {"project_root": str(self.project)}
        digest = self.call("coordination.checks_list", **where)["digest"]
        self.call("coordination.checks_approve", **where, digest=digest)
        for builder in BUILDERS:
            new = {"agent_id": builder, "cwd": str(self.project), "worktree": True}
            self.call("control.pool_create_agent", **new, model="builder", wake_on=["mail"])
        for task in self.tasks:
            self.forge.add_issue(task.number, task.title)
        known = {"kind": "github", "repository": "acme/shop", "url": self.forge.url, "token": self.forge.token}
        self.call("coordination.forge_connect", **where, **known, label="nexus")

    def call(self, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """Call an operation as an operator. Raises Cut and Refused."""
        toolset, _, name = operation.partition(".")
        try:
            answer = httpx.post(
                f"{self.stage.pool.hub.url}/api/v1/{toolset}/operations/{name}",
                json=arguments,
                headers={"Authorization": f"Bearer {self.stage.pool.token}"},
                timeout=START_SECONDS,
            )
        except httpx.TransportError:
            raise Cut from None
        envelope = answer.json()
        if not envelope["ok"]:
            raise Refused(f"{name}: {envelope['error']['message']}")
        data: dict[str, Any] = envelope["data"]
        return data

    def git(self, *arguments: str) -> str:
        """Run git in the project, and return what it says."""
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=self.project, check=True, capture_output=True, text=True
        ).stdout.strip()

    def _advance(self, task: Task) -> None:
        """Look how far a task is, and do its next step."""
        if task.stage == OVER:
            return
        try:
            task.stage = max(task.stage, self._next(task))
        except Refused as refused:  # such as: an agent works there now
            self.refusals[str(refused)] = self.refusals.get(str(refused), 0) + 1

    def _next(self, task: Task) -> int:
        if not task.handoff:
            found = self.call("coordination.handoff_list", project_root=str(self.project), limit=100)["handoffs"]
            task.handoff = next((row["handoff_id"] for row in found if row["title"].endswith(task.title)), "")
            return bool(task.handoff)
        handoff = self.call("coordination.handoff_read", handoff_id=task.handoff)
        status = handoff["status"]
        if status == "OPEN":
            return self._assign(task, handoff)
        if status == "SUBMITTED":
            return self._decide(task, handoff)
        if status == "COMPLETED":
            return self._follow(task, handoff)
        if status == "CANCELLED":
            return OVER if "closed" in self._comment(task) or "cancelled" in self._comment(task) else 9
        return 3

    def _assign(self, task: Task, handoff: Row) -> int:
        """Give a task to its agent, once that has no other."""
        if handoff["target"]["strategy"] == "direct":
            return 2
        if all(other.stage == OVER for other in self.tasks[: task.number - 1] if other.builder == task.builder):
            self.call("coordination.handoff_reassign", handoff_id=task.handoff, agent_id=task.builder)
            return 2
        return 1

    def _decide(self, task: Task, handoff: Row) -> int:
        """Review work that passed its checks: comment on it, approve what is there now, or refuse it."""
        checks = handoff["checks"][-1]
        if checks["state"] != "passed":
            return 4
        if self._is_at_work(task.builder):
            return 5
        if not task.accepted:
            self.call("control.pool_worktree_keep", agent_id=task.builder)
            self.forge.change_issue(task.number, state="closed")
            return 8
        review = self._review(task)
        if task.remark and all(comment["path"] != task.file for comment in review["comments"]):
            text = f"Write {task.remark} instead. (The project is {self.project}.)"
            self.call("control.pool_add_comment", agent_id=task.builder, path=task.file, line=1, text=text)
            return 5
        if any(comment["sent_at"] is None for comment in review["comments"]):
            self.call("control.pool_send_comments", agent_id=task.builder)
            return 5
        if not (review["files"] or review["why_not"]):  # it was merged after all: see _approve
            self.call("coordination.handoff_approve", handoff_id=task.handoff)
        else:
            self._approve(task, review)
        return 6

    def _review(self, task: Task) -> Row:
        return self.call("control.pool_get_review", agent_id=task.builder)

    def _follow(self, task: Task, handoff: Row) -> int:
        """Follow approved work through the merge queue; approve it again once its agent corrected what came back."""
        entry = self._entry(task, handoff["checks"][-1]["ended_at"])
        if entry is not None and entry["state"] == "merged":
            return self._published(task)
        if entry is not None and entry["state"] == "returned" and not self._is_at_work(task.builder):
            self._approve(task, self._review(task))
        return 7

    def _approve(self, task: Task, review: Row) -> None:
        """Approve work. What conflicts goes back to its agent by way of the merge queue; if that came back since
        the look, and its agent mended it, it is merged there."""
        if review["why_not"]:
            self.call("control.pool_worktree_queue", agent_id=task.builder)
        else:
            self.call("control.pool_approve_work", agent_id=task.builder, seen=review["seen"])

    def _is_at_work(self, builder: str) -> bool:
        """Return whether an agent has an open turn. One that a kill cut off, and nothing begins again, is retried."""
        runs = self.call("control.pool_list_runs", agent_id=builder, limit=10)["runs"]
        for each in runs:
            if each["needs_person"] and each["source"] in ("lane", "review", "retry"):
                self.call("control.pool_retry_run", run_id=each["run_id"])
                return True
        return any(each["outcome"] in LIVE for each in runs)

    def _entry(self, task: Task, since: str) -> Row | None:
        """Return the last entry of the merge queue for a task's result."""
        entries = self.call("control.pool_list_merges", which="all", limit=100)["merges"]
        own = [row for row in entries if row["agent_id"] == task.builder and row["queued_at"] >= since]
        return max(own, key=lambda row: str(row["queued_at"]), default=None)

    def _published(self, task: Task) -> int:
        """Take the target branch to the forge once a task's pull request is open, as its maintainers do."""
        pull = next((row for row in self.forge.pulls.values() if f"Closes #{task.number}." in row["body"]), None)
        if pull is None:
            return 8
        if pull["state"] == "open":
            self.git("push", "--quiet", str(self.remote), "main")
            if self.is_in(f"refs/heads/{pull['head']['ref']}", "main", self.remote):
                self.forge.change_pull(pull["number"], state="closed", merged_at=self.forge.now())
                self.forge.change_issue(task.number, state="closed")
        return OVER if "merged" in self._comment(task) else 9

    def _comment(self, task: Task) -> str:
        return "".join(row["body"] for row in self.forge.comments.values() if task.handoff in row["body"])

    def is_in(self, commit: str, branch: str, repository: Path) -> bool:
        """Return whether a branch of a repository has a commit."""
        return not self.git("-C", str(repository), "rev-list", "--max-count=1", commit, f"^refs/heads/{branch}")

    def has(self, line: str, branch: str) -> bool:
        """Return whether a file of a branch has a line."""
        names = self.git("ls-tree", "-r", "--name-only", branch).splitlines()
        return any(line in self.git("show", f"{branch}:{name}").splitlines() for name in names)

    def _unfinished(self) -> list[object]:
        """Return what the hub says of each task that is not over, to find out why."""
        told = list[object]()
        for task in self.tasks:
            if task.stage < OVER:
                runs = self.call("control.pool_list_runs", agent_id=task.builder, limit=20)["runs"]
                handoff = self.call("coordination.handoff_read", handoff_id=task.handoff)
                merges = self.call("control.pool_list_merges", which="all", limit=100)["merges"]
                told += [handoff, self._review(task), runs, [row for row in merges if row["agent_id"] == task.builder]]
        return told

    def account(self) -> dict[str, tuple[int, int]]:
        """Return what should have come of it, and what git, the hub and the forge have."""
        accepted = [task for task in self.tasks if task.accepted]
        refused = [task for task in self.tasks if not task.accepted]
        handoffs = [self.call("coordination.handoff_read", handoff_id=task.handoff) for task in self.tasks]
        runs = [run for handoff in handoffs for run in handoff["checks"]]
        merges = self.call("control.pool_list_merges", which="all", limit=100)["merges"]
        kept = self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/nexus").splitlines()
        mail = [row for builder in BUILDERS for row in self._mail(builder)]
        unread = [self.call("coordination.inbox_count", agent_id=builder) for builder in BUILDERS]
        remarks = self._review(next(task for task in self.tasks if task.remark))["comments"]
        left = self.call("control.pool_list_runs", which="needing_person")["runs"]
        merged = self.git("log", "--first-parent", "--format=%s", "main").splitlines()
        in_conflict = sum(map(_is_in_conflict, runs))  # where a kill put the checks off until the other was merged
        return {
            "kills of the hub": (2, self.killed),
            "handoffs completed": (len(accepted), _count(handoffs, "status", "COMPLETED")),
            "handoffs cancelled": (len(refused), _count(handoffs, "status", "CANCELLED")),
            "accepted lines in main": (len(accepted), sum(self.has(each.accepted, "main") for each in accepted)),
            "refused lines in main": (0, sum(self.has(each.line, "main") for each in refused)),
            "refused lines in a kept branch": (
                len(refused),
                sum(any(self.has(each.line, branch) for branch in kept) for each in refused),
            ),
            "merges in main": (len(accepted), sum(line.startswith("Merge ") for line in merged)),
            "entries of the lane that merged": (len(accepted), _count(merges, "state", "merged")),
            "results and entries that came back for a conflict": (1, _count(merges, "cause", "conflict") + in_conflict),
            "results that failed their checks": (1, _count(runs, "state", "failed") - in_conflict),
            "comments of reviews that are done": (1, _count(remarks, "outcome", "done")),
            "results whose receipts are complete": (len(self.tasks) + 2 + in_conflict, sum(map(_is_complete, runs))),
            "pull requests": (len(accepted), len(self.forge.pulls)),
            "of these merged": (len(accepted), sum(bool(row["merged_at"]) for row in self.forge.pulls.values())),
            "comments, one for each issue": (len(self.tasks), len(self.forge.comments)),
            "mails with a complete receipt": (len(mail), sum(map(self._is_received, mail))),
            "mails that wait": (0, sum(each["unread"] + each["in_flight"] for each in unread)),
            "runs that need a person": (0, len(left)),
        }

    def _mail(self, builder: str) -> list[str]:
        page = self.call("coordination.inbox_history", agent_id=builder, limit=100)
        return [row["message_id"] for row in page["messages"]]

    def _is_received(self, message_id: str) -> bool:
        """Return whether a message was noticed, handed over and acknowledged, by its receipts."""
        receipts = self.call("coordination.message_receipts", message_id=message_id)["receipts"]
        stages = {each["stage"]: each["reached"] for row in receipts for each in row["stages"]}
        return all(stages[name] for name in ("stored", "noticed", "handed_over", "acknowledged"))


def _count(rows: Iterable[Row], column: str, value: str) -> int:
    return sum(row[column] == value for row in rows)


def _is_in_conflict(run: Row) -> bool:
    """Return whether a result could not be merged when it was checked."""
    return any("the same places" in (receipt["why"] or "") for receipt in run["receipts"])


def _is_complete(run: Row) -> bool:
    """Return whether the checks of a result ended, with a receipt and a fact sheet."""
    return run["ended_at"] is not None and len(run["receipts"]) == 1 and run["facts"]["why"] is None

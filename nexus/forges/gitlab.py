"""GitLab, by python-gitlab."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import requests
from gitlab import Gitlab
from gitlab.exceptions import GitlabError, RedirectError

from nexus.forges.protocol import (
    MAX_COMMENTS,
    MAX_ISSUES,
    MAX_JOBS,
    MAY_NOT_WRITE,
    PASSING,
    RIGHTS_HIDDEN,
    TIMEOUT_SECONDS,
    Busy,
    Checks,
    Comment,
    ForgeError,
    IssueData,
    Job,
    NotThere,
    Pull,
    Rejected,
    TokenRefused,
    end_of,
    text_of,
)

PAGE = 100
DEVELOPER = 30  # the access level from which a person's comments reach an agent
STATES = {"opened": "open", "locked": "open"}
PASSED, FAILED = {"success", "skipped", "manual"}, {"failed", "canceled"}


class GitLabClient:
    """One project on GitLab."""

    def __init__(self, url: str, repository: str, token: str) -> None:
        self._gitlab = Gitlab(
            url, private_token=token, timeout=TIMEOUT_SECONDS, per_page=PAGE, keep_base_url=True, user_agent="nexus"
        )
        self._name = repository
        self._project = self._gitlab.projects.get(repository, lazy=True)
        self._writers: dict[int, bool] = {}

    def issues(self, since: datetime | None, etag: str) -> tuple[Sequence[IssueData], str] | None:
        query: dict[str, Any] = {"order_by": "updated_at", "sort": "asc", "scope": "all"}
        if since is not None:
            query["updated_after"] = since.astimezone(UTC).isoformat()
        with _errors():
            rows = self._project.issues.list(iterator=True, **query, **_ONCE)
            return [_issue(row.attributes) for row in islice(rows, MAX_ISSUES)], ""

    def issue(self, number: int) -> IssueData:
        with _errors():
            return _issue(self._project.issues.get(number, **_ONCE).attributes)

    def remote(self) -> str:
        with _errors():
            return str(self._by_id().http_url_to_repo)

    def _by_id(self) -> Any:
        return self._gitlab.projects.get(self._name, **_ONCE)

    def _write(self, call: Callable[[Any], Any]) -> Any:
        """Return what a writing call of the project returns. GitLab forwards none by the former name of a project."""
        try:
            return call(self._project)
        except GitlabError as error:
            if error.response_code != 405 and not isinstance(error, RedirectError):
                raise
            return call(self._by_id())

    def find_comment(self, number: int, marker: str) -> int | None:
        with _errors():
            notes = _notes(self._project, number).list(iterator=True, **_ONCE)
            return next((note.id for note in islice(notes, MAX_ISSUES) if marker in note.body), None)

    def add_comment(self, number: int, text: str) -> int:
        with _errors():
            return int(self._write(lambda it: _notes(it, number).create({"body": text}, **_ONCE)).id)

    def edit_comment(self, number: int, comment_id: int, text: str) -> None:
        with _errors():
            self._write(lambda it: _notes(it, number).update(comment_id, {"body": text}, **_ONCE))

    def find_pull(self, branch: str) -> Pull | None:
        query = {"source_branch": branch, "state": "all", "order_by": "created_at", "sort": "desc"}
        with _errors():
            found = self._project.mergerequests.list(iterator=True, **query, **_ONCE)
            return next((_pull(each.attributes) for each in islice(found, 1)), None)

    def open_pull(self, branch: str, base: str | None, title: str, text: str) -> Pull:
        with _errors():
            into = base or self._by_id().default_branch
            made = {"source_branch": branch, "target_branch": into, "title": title, "description": text}
            return _pull(self._write(lambda it: it.mergerequests.create(made, **_ONCE)).attributes)

    def pull(self, number: int) -> Pull:
        with _errors():
            return _pull(self._project.mergerequests.get(number, **_ONCE).attributes)

    def checks(self, pull: Pull, known: Collection[str]) -> Checks:
        with _errors():
            request = self._project.mergerequests.get(pull.number, lazy=True)
            pipelines = list(islice(request.pipelines.list(iterator=True, **_ONCE), PAGE))
            pipelines.sort(key=_rank, reverse=True)
            latest = next((each for each in pipelines if self._is_of(each, pull.head)), None)
            if latest is None:
                return Checks("none")
            if latest.status not in PASSED | FAILED:
                return Checks("pending")
            if latest.status in PASSED:
                return Checks("passed")
            pipeline = self._project.pipelines.get(latest.id, lazy=True)
            jobs = islice(pipeline.jobs.list(iterator=True, **_ONCE), MAX_ISSUES)
            failed = (job for job in jobs if job.status == "failed" and not job.attributes.get("allow_failure"))
            keys = {f"{pull.head}:{job.id}": job for job in islice(failed, MAX_JOBS)}
            found = [
                Job(key, text_of(job.name, 200), job.web_url, self._log(job.id))
                for key, job in keys.items()
                if key not in known
            ]
            whole = f"{pull.head}:pipeline:{latest.id}"
            if not keys and whole not in known:  # what failed is no job of it: another pipeline, or a status
                found = [Job(whole, f"pipeline {latest.id}", latest.attributes.get("web_url") or "", "")]
            return Checks("failed", found)

    def _is_of(self, pipeline: Any, head: str) -> bool:
        """Return whether a pipeline ran on the head of a merge request, or on its merge with the target."""
        if pipeline.sha == head:
            return True
        if not str(pipeline.attributes.get("ref")).endswith(("/merge", "/train")):
            return False
        try:
            return head in self._project.commits.get(pipeline.sha, **_ONCE).parent_ids
        except GitlabError as error:
            if error.response_code != 404:
                raise
            return True  # the merge is gone; no newer one has come

    def _log(self, job_id: int) -> str:
        """Return the end of a job's log; nothing where it was erased, or developers alone may read it."""
        try:
            pieces = self._project.jobs.get(job_id, lazy=True).trace(iterator=True, streamed=True, **_ONCE)
        except GitlabError as error:
            if error.response_code not in (403, 404):
                raise
            return ""
        return end_of(pieces or ())

    def comments(self, number: int, since: datetime | None, known: Collection[str]) -> Sequence[Comment]:
        with _errors():
            request = self._project.mergerequests.get(number, lazy=True)
            url = self._project.mergerequests.get(number, **_ONCE).web_url
            notes = request.notes.list(iterator=True, order_by="updated_at", sort="desc", **_ONCE)
            found = []
            for note in islice(notes, MAX_COMMENTS):
                row = note.attributes
                if since is not None and datetime.fromisoformat(row["updated_at"]) < since:
                    break
                comment = _comment(row, url)
                if not row["system"] and row["body"].strip() and comment.key not in known:
                    found.append(replace(comment, left_out=self._why_not(row["author"]["id"])))
        return found[::-1]

    def _why_not(self, user: int) -> str:
        """Return why a person's comment does not count; empty for one who may write."""
        if user not in self._writers:
            try:
                member = self._project.members_all.get(user, **_ONCE)
                self._writers[user] = member.access_level >= DEVELOPER
            except GitlabError as error:
                if error.response_code == 403:
                    return RIGHTS_HIDDEN
                if error.response_code != 404:
                    raise
                self._writers[user] = False
        return "" if self._writers[user] else MAY_NOT_WRITE


def _rank(pipeline: Any) -> tuple[bool, int]:
    """Return the order of pipelines: a merge request's own comes before one of its branch on the same commit."""
    return str(pipeline.attributes.get("ref")).startswith("refs/merge-requests/"), pipeline.id


_ONCE: dict[str, Any] = {"obey_rate_limit": False, "retry_transient_errors": False}  # the hub tries again


def _notes(project: Any, issue: int) -> Any:
    return project.issues.get(issue, lazy=True).notes


def _issue(row: dict[str, Any]) -> IssueData:
    return IssueData(
        number=row["iid"],
        title=text_of(row["title"]),
        text=text_of(row.get("description")),
        author=(row.get("author") or {}).get("username", "ghost"),
        url=row["web_url"],
        labels=frozenset(row["labels"]),
        assignees=frozenset(each["username"] for each in row.get("assignees") or ()),
        is_open=row["state"] == "opened",
        updated_at=datetime.fromisoformat(row["updated_at"]),
    )


def _pull(row: dict[str, Any]) -> Pull:
    state = STATES.get(row["state"], row["state"])
    return Pull(
        row["iid"],
        row["web_url"],
        state,
        row.get("sha") or "",
        datetime.fromisoformat(row["updated_at"]),
        text_of(row.get("description")),
    )


def _comment(row: dict[str, Any], url: str) -> Comment:
    position = row.get("position") or {}
    return Comment(
        key=f"note:{row['id']}",
        author=row["author"]["username"],
        text=text_of(row["body"]),
        url=f"{url}#note_{row['id']}",
        path=text_of(position.get("new_path") or position.get("old_path")),
        line=position.get("new_line") or position.get("old_line"),
    )


@contextmanager
def _errors() -> Iterator[None]:
    """Raise the library's errors as ours, without its texts."""
    try:
        yield
    except GitlabError as error:
        status = error.response_code
        if status == 429:
            raise Busy("the forge's rate limit is used up", 60.0) from None
        if status in (401, 403):
            raise TokenRefused(f"the forge refused the token ({status})") from None
        if status == 404:
            raise NotThere("the forge does not have it, or the token may not see it (404)") from None
        if status is not None and 400 <= status < 500 and status not in PASSING:
            raise Rejected(f"the forge rejects it ({status})") from None
        raise ForgeError(f"the forge answered {status or type(error).__name__}") from None
    except requests.RequestException as error:
        raise ForgeError(f"the forge could not be reached ({type(error).__name__})") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ForgeError(f"the forge's answer is not what it documents ({type(error).__name__})") from None

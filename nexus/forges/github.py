"""GitHub and GitHub Enterprise, by PyGithub."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import requests
from github import Auth, Github, GithubException, RateLimitExceededException

from nexus.forges.protocol import (
    MAX_COMMENTS,
    MAX_ISSUES,
    MAX_JOBS,
    MAX_LOG,
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
MOMENT = "%Y-%m-%dT%H:%M:%SZ"
WRITERS = {"OWNER", "MEMBER", "COLLABORATOR"}  # whose comments an agent gets
FAILED = {"failure", "timed_out", "cancelled", "action_required", "startup_failure"}
WAIT_SECONDS = 60.0  # where the forge does not say how long its rate limit lasts


class GitHubClient:
    """One repository on GitHub."""

    def __init__(self, url: str, repository: str, token: str) -> None:
        self._github = Github(
            auth=Auth.Token(token),
            base_url=url,
            timeout=TIMEOUT_SECONDS,
            retry=None,  # the hub tries again, without holding a thread
            seconds_between_requests=0,
            seconds_between_writes=0,
            per_page=PAGE,
        )
        self._path = f"/repos/{repository}"

    def issues(self, since: datetime | None, etag: str) -> tuple[Sequence[IssueData], str] | None:
        query: dict[str, Any] = {"state": "all", "sort": "updated", "direction": "asc", "per_page": PAGE}
        if since is not None:
            query["since"] = since.astimezone(UTC).strftime(MOMENT)
        found: list[IssueData] = []
        newest = ""
        for page in range(1, MAX_ISSUES // PAGE + 1):
            rows, tag = self._page(f"{self._path}/issues", {**query, "page": page}, etag if page == 1 else "")
            if rows is None:
                return None
            newest = newest or tag
            found += [_issue(row) for row in rows if "pull_request" not in row]
            if len(rows) < PAGE:
                break
        return found, newest

    def _page(self, path: str, query: dict[str, Any], etag: str) -> tuple[list[dict[str, Any]] | None, str]:
        """Return a page's rows and its ETag; no rows where it is as it was."""
        requester = self._github.requester
        with _errors():
            status, headers, body = requester.requestJson("GET", path, query, {"If-None-Match": etag} if etag else None)
            if status == 304:
                return None, etag
            rows = json.loads(body)
            if status >= 400:
                raise requester.createException(status, headers, rows)
        return rows, headers.get("etag", "")

    def _call(self, verb: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        # The library's objects ask for more than they were made of, whenever a field is read.
        with _errors():
            return self._github.requester.requestJsonAndCheck(verb, f"{self._path}{path}", query, input=body)[1]

    def _rows(self, path: str, query: dict[str, Any], most: int) -> Iterator[dict[str, Any]]:
        """Return the rows of all pages, `most` of them at most."""
        for page in range(1, most // PAGE + 1):
            rows = self._call("GET", path, {**query, "per_page": PAGE, "page": page})
            yield from rows
            if len(rows) < PAGE:
                return

    def issue(self, number: int) -> IssueData:
        row = self._call("GET", f"/issues/{number}")
        if "pull_request" in row:
            raise NotThere(f"{number} is a pull request")
        with _errors():
            return _issue(row)

    def remote(self) -> str:
        return str(self._call("GET", "")["clone_url"])

    def find_comment(self, number: int, marker: str) -> int | None:
        rows = self._rows(f"/issues/{number}/comments", {}, MAX_ISSUES)
        return next((row["id"] for row in rows if marker in (row.get("body") or "")), None)

    def add_comment(self, number: int, text: str) -> int:
        return int(self._call("POST", f"/issues/{number}/comments", body={"body": text})["id"])

    def edit_comment(self, number: int, comment_id: int, text: str) -> None:
        self._call("PATCH", f"/issues/comments/{comment_id}", body={"body": text})

    def find_pull(self, branch: str) -> Pull | None:
        owner = self._path.split("/")[2]
        query = {"state": "all", "head": f"{owner}:{branch}", "sort": "created", "direction": "desc"}
        rows = self._call("GET", "/pulls", {**query, "per_page": 1})
        return _pull(rows[0]) if rows else None

    def open_pull(self, branch: str, base: str | None, title: str, text: str) -> Pull:
        into = base or self._call("GET", "")["default_branch"]
        return _pull(self._call("POST", "/pulls", body={"base": into, "head": branch, "title": title, "body": text}))

    def pull(self, number: int) -> Pull:
        return _pull(self._call("GET", f"/pulls/{number}"))

    def checks(self, pull: Pull, known: Collection[str]) -> Checks:
        runs = self._call("GET", f"/commits/{pull.head}/check-runs", {"per_page": PAGE})["check_runs"]
        if not runs:
            return Checks("none")
        if any(run["status"] != "completed" for run in runs):
            return Checks("pending")
        failed = [run for run in runs if run["conclusion"] in FAILED]
        keys = {f"{pull.head}:{run['id']}": run for run in failed[:MAX_JOBS]}
        jobs = [
            Job(key, text_of(run["name"], 200), run["html_url"] or "", self._log(run))
            for key, run in keys.items()
            if key not in known
        ]
        return Checks("failed" if failed else "passed", jobs)

    def _log(self, run: dict[str, Any]) -> str:
        """Return the end of a job's log; for a check that is no job of GitHub Actions, its own summary."""
        if (run.get("app") or {}).get("slug") != "github-actions":
            output = run.get("output") or {}
            return text_of("\n".join(filter(None, (output.get("summary"), output.get("text"))))[-MAX_LOG:])
        with _errors():
            status, headers, body = self._github.requester.requestJson(
                "GET", f"{self._path}/actions/jobs/{run['id']}/logs"
            )
        if status == 302:  # to a storage that needs no token and must not get ours
            return _end_at(headers["location"])
        return text_of(body[-MAX_LOG:]) if status == 200 else ""

    def comments(self, number: int, since: datetime | None) -> Sequence[Comment]:
        after = {} if since is None else {"since": since.astimezone(UTC).strftime(MOMENT)}
        found = []
        for kind, path, query in (
            ("line", f"/pulls/{number}/comments", after),
            ("said", f"/issues/{number}/comments", after),
            ("review", f"/pulls/{number}/reviews", {}),
        ):
            with _errors():
                found += [_comment(kind, row) for row in self._rows(path, query, MAX_COMMENTS)]
        return [each for each in found if each is not None]


def _issue(row: dict[str, Any]) -> IssueData:
    return IssueData(
        number=row["number"],
        title=text_of(row["title"]),
        text=text_of(row.get("body")),
        author=(row.get("user") or {}).get("login", "ghost"),
        url=row["html_url"],
        labels=frozenset(each if isinstance(each, str) else each["name"] for each in row["labels"]),
        assignees=frozenset(each["login"] for each in row.get("assignees") or ()),
        is_open=row["state"] == "open",
        updated_at=datetime.fromisoformat(row["updated_at"]),
    )


def _pull(row: dict[str, Any]) -> Pull:
    with _errors():
        state = "merged" if row.get("merged_at") else row["state"]
        return Pull(
            row["number"],
            row["html_url"],
            state,
            row["head"]["sha"],
            datetime.fromisoformat(row["updated_at"]),
            text_of(row.get("body")),
        )


def _comment(kind: str, row: dict[str, Any]) -> Comment | None:
    text = row.get("body") or ""
    if kind == "review" and row.get("state") == "CHANGES_REQUESTED":
        text = f"Changes requested. {text}"
    if row.get("author_association") not in WRITERS or not text.strip():
        return None
    return Comment(
        key=f"{kind}:{row['id']}",
        author=(row.get("user") or {}).get("login", "ghost"),
        text=text_of(text),
        url=row["html_url"],
        is_refusal=row.get("state") == "CHANGES_REQUESTED",
        path=text_of(row.get("path")),
        line=row.get("line") or row.get("original_line"),
        hunk=text_of((row.get("diff_hunk") or "")[-MAX_LOG:]),
    )


def _end_at(url: str) -> str:
    """Return the end of a log at an address that is a secret itself."""
    try:
        with requests.get(url, stream=True, timeout=TIMEOUT_SECONDS) as answer:
            return end_of(answer.iter_content(65_536)) if answer.status_code == 200 else ""
    except requests.RequestException:
        return ""


@contextmanager
def _errors() -> Iterator[None]:
    """Raise the library's errors as ours, without its texts."""
    try:
        yield
    except GithubException as error:
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        seconds = _wait(error.status, headers)
        if seconds is None and isinstance(error, RateLimitExceededException):
            seconds = WAIT_SECONDS
        if seconds is not None:
            raise Busy(f"the forge's rate limit is used up for {seconds:.0f} s", seconds) from None
        if error.status in (401, 403):
            raise TokenRefused(f"the forge refused the token ({error.status})") from None
        if error.status in (404, 410):
            raise NotThere("the forge does not have it, or the token may not see it (404)") from None
        if 400 <= error.status < 500:
            raise Rejected(f"the forge rejects it ({error.status})") from None
        raise ForgeError(f"the forge answered {error.status}") from None
    except requests.RequestException as error:
        raise ForgeError(f"the forge could not be reached ({type(error).__name__})") from None
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise ForgeError(f"the forge's answer is not what it documents ({type(error).__name__})") from None


def _wait(status: int, headers: dict[str, Any], moment: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that an answer asks to wait; None if it does not."""
    if status not in (403, 429):
        return None
    if (after := str(headers.get("retry-after", ""))).isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and str(headers.get("x-ratelimit-reset", "")).isdecimal():
        return max(1.0, float(headers["x-ratelimit-reset"]) - moment())
    return WAIT_SECONDS if status == 429 else None

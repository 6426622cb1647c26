"""GitHub and GitHub Enterprise, by their REST API: PyGithub forgets the query of a call that is redirected, as after a
rename, and the end of a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import requests

from nexus.forges.protocol import (
    MAX_ISSUES,
    MAX_JOBS,
    MAX_LOG,
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
MOMENT = "%Y-%m-%dT%H:%M:%SZ"
WRITERS = {"OWNER", "MEMBER", "COLLABORATOR"}  # whose comments an agent gets; of others the right to write is asked
FAILED = {"failure", "timed_out", "cancelled", "action_required", "startup_failure"}
FAILED_STATUS = {"failure", "error"}
WAIT_SECONDS = 60.0  # where the forge does not say how long its rate limit lasts
HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28", "User-Agent": "nexus"}


class GitHubClient:
    """One repository on GitHub."""

    def __init__(self, url: str, repository: str, token: str) -> None:
        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        self._session = requests.Session()
        self._session.auth = authorize  # a header would be replaced by what ~/.netrc has
        self._session.headers.update(HEADERS)
        self._url, self._path = url, f"/repos/{repository}"
        self._writers: dict[str, bool] = {}

    def issues(self, since: datetime | None, etag: str) -> tuple[Sequence[IssueData], str] | None:
        query: dict[str, Any] = {"state": "all", "sort": "updated", "direction": "asc"}
        if since is not None:
            query["since"] = since.astimezone(UTC).strftime(MOMENT)
        found: list[IssueData] = []
        newest = ""
        with _errors():
            for answer, rows in self._pages("/issues", query, MAX_ISSUES, etag=etag):
                if answer.status_code == 304:
                    return None
                newest = newest or answer.headers.get("etag", "")
                found += [_issue(row) for row in rows if "pull_request" not in row]
        return found, newest

    def _ask(
        self, verb: str, path: str, query: dict[str, Any] | None = None, body: Any = None, etag: str = ""
    ) -> requests.Response:
        """Return the answer to one call. Call it within `_errors`."""
        headers = {"If-None-Match": etag} if etag else None
        how = {"params": query, "json": body, "headers": headers, "timeout": TIMEOUT_SECONDS}
        answer = self._session.request(verb, f"{self._url}{self._path}{path}", **how)
        if answer.status_code >= 400:
            raise _error_of(answer)
        return answer

    def _call(self, verb: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        with _errors():
            return self._ask(verb, path, query, body).json()

    def _pages(
        self, path: str, query: dict[str, Any], most: int, name: str = "", etag: str = ""
    ) -> Iterator[tuple[requests.Response, list[dict[str, Any]]]]:
        """Yield pages with their rows, `most` rows at most; `name` is the rows' field where a page is an object. A page
        may be short although there is a next one; a forge without the header Link has full ones."""
        for page in range(1, most // PAGE + 1):
            answer = self._ask("GET", path, {**query, "per_page": PAGE, "page": page}, etag=etag if page == 1 else "")
            data: Any = answer.json() if answer.content else []
            rows = data[name] if name else data
            yield answer, rows
            if "next" not in answer.links if "link" in answer.headers else len(rows) < PAGE:
                return

    def _rows(self, path: str, query: dict[str, Any], most: int, name: str = "") -> Iterator[dict[str, Any]]:
        for _, rows in self._pages(path, query, most, name):
            yield from rows

    def issue(self, number: int) -> IssueData:
        row = self._call("GET", f"/issues/{number}")
        if "pull_request" in row:
            raise NotThere(f"{number} is a pull request")
        with _errors():
            return _issue(row)

    def remote(self) -> str:
        with _errors():
            return str(self._call("GET", "")["clone_url"])

    def find_comment(self, number: int, marker: str) -> int | None:
        rows = self._rows(f"/issues/{number}/comments", {}, MAX_ISSUES)
        with _errors():
            return next((row["id"] for row in rows if marker in (row.get("body") or "")), None)

    def add_comment(self, number: int, text: str) -> int:
        with _errors():
            return int(self._call("POST", f"/issues/{number}/comments", body={"body": text})["id"])

    def edit_comment(self, number: int, comment_id: int, text: str) -> None:
        self._call("PATCH", f"/issues/comments/{comment_id}", body={"body": text})

    def find_pull(self, branch: str) -> Pull | None:
        owner = self._owner()
        query = {"state": "all", "head": f"{owner}:{branch}", "sort": "created", "direction": "desc"}
        rows = self._call("GET", "/pulls", {**query, "per_page": 1})
        return _pull(rows[0]) if rows else None

    def _owner(self) -> str:
        """Return whose the repository is: another's than it was, if it was transferred."""
        with _errors():
            answer = self._ask("GET", "")
            return str(answer.json()["owner"]["login"]) if answer.history else self._path.split("/")[2]

    def open_pull(self, branch: str, base: str | None, title: str, text: str) -> Pull:
        with _errors():
            into = base or self._call("GET", "")["default_branch"]
        return _pull(self._call("POST", "/pulls", body={"base": into, "head": branch, "title": title, "body": text}))

    def pull(self, number: int) -> Pull:
        return _pull(self._call("GET", f"/pulls/{number}"))

    def checks(self, pull: Pull, known: Collection[str]) -> Checks:
        with _errors():
            runs = _latest(self._rows(f"/commits/{pull.head}/check-runs", {}, MAX_ISSUES, "check_runs"))
            statuses, left_out = self._statuses(pull.head)
            states = {run["conclusion"] if run["status"] == "completed" else "pending" for run in runs}
            states |= {status["state"] for status in statuses}
            if not states:
                return Checks("none", left_out=left_out)
            if "pending" in states:
                return Checks("pending", left_out=left_out)
            jobs: dict[str, Callable[[str], Job]] = {}
            for run in runs:
                if run["conclusion"] in FAILED:
                    jobs[f"{pull.head}:{run['id']}"] = partial(self._job_of_run, run)
            for status in statuses:
                if status["state"] in FAILED_STATUS:
                    jobs[f"{pull.head}:status:{status['id']}"] = partial(_job_of_status, status)
            found = [make(key) for key, make in list(jobs.items())[:MAX_JOBS] if key not in known]
            return Checks("failed" if jobs else "passed", found, left_out)

    def _statuses(self, commit: str) -> tuple[list[dict[str, Any]], str]:
        """Return the latest commit status of each context; none, with the reason, where the token may not read them."""
        try:
            return list(self._rows(f"/commits/{commit}/status", {}, MAX_ISSUES, "statuses")), ""
        except (TokenRefused, NotThere):
            return [], "commit statuses, which the token may not read"

    def _job_of_run(self, run: dict[str, Any], key: str) -> Job:
        return Job(key, text_of(run["name"], 200), run["html_url"] or "", self._log(run))

    def _log(self, run: dict[str, Any]) -> str:
        """Return the end of a job's log; for a check that is no job of GitHub Actions, its own summary."""
        if (run.get("app") or {}).get("slug") != "github-actions":
            output = run.get("output") or {}
            return text_of("\n".join(filter(None, (output.get("summary"), output.get("text"))))[-MAX_LOG:])
        url = f"{self._url}{self._path}/actions/jobs/{run['id']}/logs"
        for _ in range(2):  # a renamed repository is elsewhere; the log is in a storage that must not get the token
            answer = self._session.get(url, allow_redirects=False, timeout=TIMEOUT_SECONDS)
            url = answer.headers.get("location", "")
            if not url.startswith(f"{self._url}/repositories/"):
                break
        return _end_at(url) if url else text_of(answer.text[-MAX_LOG:]) if answer.status_code == 200 else ""

    def comments(self, number: int, since: datetime | None, known: Collection[str]) -> Sequence[Comment]:
        after = {} if since is None else {"since": since.astimezone(UTC).strftime(MOMENT)}
        found = []
        with _errors():
            for kind, path, query in (
                ("line", f"/pulls/{number}/comments", after),
                ("said", f"/issues/{number}/comments", after),
                ("review", f"/pulls/{number}/reviews", {}),
            ):
                for row in self._rows(path, query, MAX_ISSUES):
                    comment = _comment(kind, row)
                    if comment.text.strip() and comment.key not in known:
                        why = "" if row.get("author_association") in WRITERS else self._why_not(row.get("user"))
                        found.append(replace(comment, left_out=why))
        return found

    def _why_not(self, user: dict[str, Any] | None) -> str:
        """Return why a person's comment does not count; empty for a person who may write, such as a member whose
        membership is private, or one who contributed before."""
        login = (user or {}).get("login", "")
        try:
            if login not in self._writers:
                asked = self._call("GET", f"/collaborators/{quote(login, safe='')}/permission") if login else {}
                self._writers[login] = asked.get("permission") in ("admin", "maintain", "write")
        except TokenRefused:
            return RIGHTS_HIDDEN
        except NotThere:
            self._writers[login] = False
        return "" if self._writers[login] else MAY_NOT_WRITE


def _latest(runs: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the latest run of each check: one that ran again does not count, nor one that was cancelled for a later
    one of its name."""
    latest: dict[Any, dict[str, Any]] = {}
    for run in runs:
        suite, app = (run.get(name) or {} for name in ("check_suite", "app"))
        check = app.get("slug"), suite.get("id"), run["name"]
        if check not in latest or run["id"] > latest[check]["id"]:
            latest[check] = run
    newest: dict[Any, int] = {}  # by name in any suite, as each event that starts a workflow has a suite of its own
    for (app, _, name), run in latest.items():
        newest[app, name] = max(run["id"], newest.get((app, name), 0))
    return [
        run
        for (app, _, name), run in latest.items()
        if run["conclusion"] != "cancelled" or run["id"] == newest[app, name]
    ]


def _job_of_status(status: dict[str, Any], key: str) -> Job:
    return Job(key, text_of(status["context"], 200), status.get("target_url") or "", text_of(status.get("description")))


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


def _comment(kind: str, row: dict[str, Any]) -> Comment:
    text = row.get("body") or ""
    if kind == "review" and row.get("state") == "CHANGES_REQUESTED":
        text = f"Changes requested. {text}"
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
    """Raise a library's errors as ours, without its texts."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ForgeError(f"the forge's answer is not what it documents ({type(error).__name__})") from None
    except requests.RequestException as error:
        raise ForgeError(f"the forge could not be reached ({type(error).__name__})") from None


def _error_of(answer: requests.Response) -> ForgeError:
    """Return the error for an answer, without its text."""
    status = answer.status_code
    seconds = _wait(status, answer.headers)
    if seconds is None and status in (403, 429) and "rate limit" in answer.text[:MAX_LOG].lower():
        seconds = WAIT_SECONDS
    if seconds is not None:
        return Busy(f"the forge's rate limit is used up for {seconds:.0f} s", seconds)
    if status in (401, 403):
        return TokenRefused(f"the forge refused the token ({status})")
    if status in (404, 410):
        return NotThere("the forge does not have it, or the token may not see it (404)")
    if status < 500 and status not in PASSING:
        return Rejected(f"the forge rejects it ({status})")
    return ForgeError(f"the forge answered {status}")


def _wait(status: int, headers: Mapping[str, Any], moment: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that an answer asks to wait; None if it does not."""
    if status not in (403, 429):
        return None
    if (after := str(headers.get("retry-after", ""))).isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and str(headers.get("x-ratelimit-reset", "")).isdecimal():
        return max(1.0, float(headers["x-ratelimit-reset"]) - moment())
    return WAIT_SECONDS if status == 429 else None

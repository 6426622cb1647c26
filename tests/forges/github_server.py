"""A GitHub of one repository over real HTTP. Each request and each answer is checked against GitHub's published OpenAPI
description; an answer is the description's own example, with what this server knows put into it."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.forges import description

Row = dict[str, Any]
NAME = "urn:github"  # of the description, so that a schema in it refers to the others
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@cache
def published() -> Row:
    whole: Row = json.loads(description.published().replace('"#/components', f'"{NAME}#/components'))
    return whole


@cache
def _registry() -> Any:
    return Registry().with_resource(NAME, DRAFT202012.create_resource(published()))


def resolve(value: Any) -> Any:
    """Follow a reference within the description."""
    while isinstance(value, dict) and "$ref" in value:
        parts = value["$ref"].removeprefix(f"{NAME}#/").split("/")
        value = published()
        for part in parts:
            value = value[part]
    return value


def faults(schema: Any, value: Any, *, is_request: bool) -> dict[Any, str]:
    """Return what is wrong with a value, by the part of the schema that says so."""
    validator = (OAS30WriteValidator if is_request else OAS30ReadValidator)(schema, registry=_registry())
    return {
        tuple(error.absolute_schema_path): f"{list(error.absolute_path)}: {error.message[:300]}"
        for error in validator.iter_errors(value)
        if not (error.validator == "enum" and error.instance is None and error.schema.get("nullable"))
    }


def check(schema: Any, value: Any, what: str, known: Collection[Any] = ()) -> None:
    """Check a request's value; an answer's, if `known` are the faults of the description's own example."""
    wrong = faults(schema, value, is_request=not known)
    wrong = {where: why for where, why in wrong.items() if where not in known}
    assert not wrong, f"{what}: {wrong}"


@cache
def _known(verb: str, template: str, code: str) -> Collection[Any]:
    """Return the faults of the published example, which is not always as the published schema says."""
    schema = resolve(published()["paths"][template][verb]["responses"][code])["content"]["application/json"]["schema"]
    return {(), *faults(schema, example(verb, template, code), is_request=False)}


def example(verb: str, template: str, code: str) -> Any:
    """Return the example of an answer in the description."""
    answer = resolve(published()["paths"][template][verb]["responses"][code])
    [first, *_] = answer["content"]["application/json"]["examples"].values()
    value = resolve(first)
    while isinstance(value, dict) and "value" in value:
        value = resolve(value["value"])
    return copy.deepcopy(value)


@dataclass
class GitHub:
    """What the repository holds, and what went wrong."""

    token: str = "ghp_right"
    url: str = ""
    issues: dict[int, Row] = field(default_factory=dict)
    comments: dict[int, Row] = field(default_factory=dict)
    pulls: dict[int, Row] = field(default_factory=dict)
    line_comments: list[Row] = field(default_factory=list)
    reviews: list[Row] = field(default_factory=list)
    runs: list[Row] = field(default_factory=list)
    statuses: list[Row] = field(default_factory=list)
    permissions: dict[str, str] = field(default_factory=dict)  # of those who commented
    moved: str = ""  # the path of the repository now, if it was renamed
    has_links: bool = True  # the header Link says what page is next
    logs: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # what was not as published
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # to give next, whatever is asked
    message: str = "later"  # of such an answer
    rejects: dict[str, int] = field(default_factory=dict)  # the status of every answer to a verb and path
    lost: int = 0  # so many answers are not sent, although what was asked is done
    moment: datetime = BEGAN
    repositories: Path | None = None  # the folder of acme/shop.git, which git serves here

    def now(self) -> str:
        self.moment += timedelta(seconds=1)
        return self.moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def add_issue(self, number: int, title: str, text: str = "", labels: tuple[str, ...] = ("nexus",)) -> Row:
        row: Row = example("get", f"{description.REPOSITORY}/issues/{{issue_number}}", "200")
        row |= {"number": number, "title": title, "body": text, "state": "open", "updated_at": self.now()}
        row |= {"labels": [{**row["labels"][0], "name": name} for name in labels], "assignees": []}
        row |= {"html_url": f"https://github.com/acme/shop/issues/{number}", "closed_at": None}
        row.pop("pull_request", None)
        self.issues[number] = row
        return row

    def change_issue(self, number: int, **columns: Any) -> None:
        self.issues[number] |= {**columns, "updated_at": self.now()}

    def change_pull(self, number: int, **columns: Any) -> None:
        self.pulls[number] |= {**columns, "updated_at": self.now()}

    def add_run(self, name: str, conclusion: str | None, log: str = "") -> Row:
        template = f"{description.REPOSITORY}/commits/{{ref}}/check-runs"
        row: Row = example("get", template, "200")["check_runs"][0]
        number = len(self.runs) + 1
        row |= {"id": number, "name": name, "conclusion": conclusion}
        row |= {"status": "completed" if conclusion else "in_progress"}
        row["app"]["slug"] = "github-actions"
        self.runs.append(row)
        self.logs[number] = log
        return row

    def add_status(self, context: str, state: str, about: str = "") -> Row:
        row: Row = example("get", f"{description.REPOSITORY}/commits/{{ref}}/status", "200")["statuses"][0]
        row |= {"id": 500 + len(self.statuses), "context": context, "state": state, "description": about}
        self.statuses.append(row)
        return row

    def add_line_comment(self, text: str, association: str = "MEMBER", login: str = "mona") -> Row:
        template = f"{description.REPOSITORY}/pulls/{{pull_number}}/comments"
        row: Row = example("get", template, "200")[0]
        row |= {"id": 1000 + len(self.line_comments), "body": text, "author_association": association}
        row |= {"updated_at": self.now(), "path": "shop/cart.py", "line": 7}
        row["user"]["login"] = login
        self.line_comments.append(row)
        return row

    # The operations: the template's values and the query or body come in, status and body go out.

    def get_repository(self, query: Row) -> tuple[int, Any]:
        return 200, example("get", description.REPOSITORY, "200") | {
            "default_branch": "main",
            "clone_url": f"{self.url}/acme/shop.git",
        }

    def get_issues(self, query: Row) -> tuple[int, Any]:
        rows = sorted(self.issues.values(), key=lambda row: row["updated_at"])
        rows = [row for row in rows if row["updated_at"] >= query.get("since", "")]
        if query.get("state", "open") != "all":
            rows = [row for row in rows if row["state"] == "open"]
        return 200, paged(rows, query)

    def get_issue(self, query: Row, issue_number: str) -> tuple[int, Any]:
        row = self.issues.get(int(issue_number))
        return (200, row) if row else (404, {"message": "Not Found"})

    def get_comments(self, query: Row, issue_number: str) -> tuple[int, Any]:
        rows = [row for row in self.comments.values() if row["issue_url"].endswith(f"/{issue_number}")]
        return 200, [row for row in rows if row["updated_at"] >= query.get("since", "")]

    def post_comments(self, body: Row, issue_number: str) -> tuple[int, Any]:
        row = example("post", f"{description.REPOSITORY}/issues/{{issue_number}}/comments", "201")
        number = 1 + max(self.comments, default=0)
        row |= {"id": number, "body": body["body"], "issue_url": f"{self.url}/repos/acme/shop/issues/{issue_number}"}
        row |= {"updated_at": self.now(), "created_at": self.now()}
        self.comments[number] = row
        return 201, row

    def patch_comment(self, body: Row, comment_id: str) -> tuple[int, Any]:
        row = self.comments.get(int(comment_id))
        if row is None:
            return 404, {"message": "Not Found"}
        row |= {"body": body["body"], "updated_at": self.now()}
        return 200, row

    def get_pulls(self, query: Row) -> tuple[int, Any]:
        rows = [row for row in self.pulls.values() if f"acme:{row['head']['ref']}" == query.get("head")]
        simple = example("get", f"{description.REPOSITORY}/pulls", "200")[0]
        return 200, [{name: row.get(name, simple[name]) for name in simple} for row in reversed(rows)]

    def post_pulls(self, body: Row) -> tuple[int, Any]:
        number = 100 + len(self.pulls)
        row = example("post", f"{description.REPOSITORY}/pulls", "201")
        row |= {"number": number, "title": body["title"], "body": body["body"], "state": "open", "merged_at": None}
        row |= {"html_url": f"https://github.com/acme/shop/pull/{number}", "updated_at": self.now(), "closed_at": None}
        row |= {"url": f"{self.url}/repos/acme/shop/pulls/{number}"}
        row |= {"issue_url": f"{self.url}/repos/acme/shop/issues/{number}"}
        row["head"] |= {"ref": body["head"], "sha": hashlib.sha1(body["head"].encode()).hexdigest()}
        row["base"] |= {"ref": body["base"]}
        self.pulls[number] = row
        return 201, row

    def get_pull(self, query: Row, pull_number: str) -> tuple[int, Any]:
        row = self.pulls.get(int(pull_number))
        return (200, row) if row else (404, {"message": "Not Found"})

    def get_line_comments(self, query: Row, pull_number: str) -> tuple[int, Any]:
        return 200, [row for row in self.line_comments if row["updated_at"] >= query.get("since", "")]

    def get_reviews(self, query: Row, pull_number: str) -> tuple[int, Any]:
        return 200, self.reviews

    def get_runs(self, query: Row, ref: str) -> tuple[int, Any]:
        return 200, {"total_count": len(self.runs), "check_runs": paged(self.runs, query)}

    def get_status(self, query: Row, ref: str) -> tuple[int, Any]:
        row = example("get", f"{description.REPOSITORY}/commits/{{ref}}/status", "200")
        return 200, {**row, "total_count": len(self.statuses), "statuses": paged(self.statuses, query)}

    def get_permission(self, query: Row, username: str) -> tuple[int, Any]:
        if username not in self.permissions:
            return 404, {"message": "Not Found"}
        row = example("get", f"{description.REPOSITORY}/collaborators/{{username}}/permission", "200")
        return 200, {**row, "permission": self.permissions[username]}

    def get_log(self, query: Row, job_id: str) -> tuple[int, Any]:
        return 302, f"{self.url}/storage/{job_id}"


def paged(rows: list[Row], query: Row) -> list[Row]:
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    return rows[size * (page - 1) : size * page]


ISSUE = f"{description.REPOSITORY}/issues/{{issue_number}}"
PULL = f"{description.REPOSITORY}/pulls/{{pull_number}}"
ROUTES = {
    ("get", description.REPOSITORY): GitHub.get_repository,
    ("get", f"{description.REPOSITORY}/issues"): GitHub.get_issues,
    ("get", ISSUE): GitHub.get_issue,
    ("get", f"{ISSUE}/comments"): GitHub.get_comments,
    ("post", f"{ISSUE}/comments"): GitHub.post_comments,
    ("patch", f"{description.REPOSITORY}/issues/comments/{{comment_id}}"): GitHub.patch_comment,
    ("get", f"{description.REPOSITORY}/pulls"): GitHub.get_pulls,
    ("post", f"{description.REPOSITORY}/pulls"): GitHub.post_pulls,
    ("get", PULL): GitHub.get_pull,
    ("get", f"{PULL}/comments"): GitHub.get_line_comments,
    ("get", f"{PULL}/reviews"): GitHub.get_reviews,
    ("get", f"{description.REPOSITORY}/commits/{{ref}}/check-runs"): GitHub.get_runs,
    ("get", f"{description.REPOSITORY}/commits/{{ref}}/status"): GitHub.get_status,
    ("get", f"{description.REPOSITORY}/collaborators/{{username}}/permission"): GitHub.get_permission,
    ("get", f"{description.REPOSITORY}/actions/jobs/{{job_id}}/logs"): GitHub.get_log,
}


def _matched(path: str) -> tuple[str, dict[str, str]]:
    for template in sorted(published()["paths"], key=lambda each: "{" in each.rpartition("/")[2]):
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
        if found := re.fullmatch(pattern, path):
            return template, found.groupdict()
    raise AssertionError(f"{path} is not published")


def _typed(schema: Row, text: str) -> Any:
    kind = resolve(schema).get("type")
    return int(text) if kind == "integer" and text.isdecimal() else text


def answer(github: GitHub, verb: str, target: str, body: bytes) -> tuple[int, Any]:
    """Check a request, do it, and check the answer. Raises AssertionError for what is not as published."""
    parts = urlsplit(target)
    template, values = _matched(parts.path)
    operation = published()["paths"][template][verb]
    query = dict(parse_qsl(parts.query))
    known = {each["name"]: each for each in map(resolve, operation["parameters"])}
    for name, text in {**query, **values}.items():
        assert name in known, f"{verb} {template}: no parameter {name}"
        check(known[name]["schema"], _typed(known[name]["schema"], text), f"{verb} {target}")
    given = json.loads(body) if body else {}
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        check(schema, given, f"{verb} {target}")
    rest = {name: value for name, value in values.items() if name not in ("owner", "repo")}
    status, data = ROUTES[verb, template](github, given if body else query, **rest)  # type: ignore[operator]
    if status in (200, 201):
        schema = resolve(operation["responses"][str(status)])["content"]["application/json"]["schema"]
        check(schema, data, f"answer to {verb} {target}", _known(verb, template, str(status)))
    return status, data


def answer_of_git(
    request: BaseHTTPRequestHandler, body: bytes, repositories: Path | None, login: str
) -> tuple[int, bytes, dict[str, str]]:
    """Answer a request for a repository as git itself does over HTTP, if it has the login."""
    if request.headers.get("authorization") != f"Basic {base64.b64encode(login.encode()).decode()}":
        return 401, b"", {"www-authenticate": 'Basic realm="git"'}
    assert repositories is not None
    path, _, query = request.path.partition("?")
    values = {
        "GIT_PROJECT_ROOT": str(repositories),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REMOTE_USER": "nexus",
        "REQUEST_METHOD": request.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
    }
    ended = subprocess.run(["git", "http-backend"], env={**os.environ, **values}, input=body, capture_output=True)
    head, _, rest = ended.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
    return int(headers.pop("Status", "200").split()[0]), rest, headers


class Answering(BaseHTTPRequestHandler):
    """Sends whole answers, JSON if they do not say otherwise, and logs nothing."""

    def _send(self, status: int, text: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        kind = {} if "Content-Type" in headers else {"content-type": "application/json"}
        for name, value in {**headers, **kind, "content-length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def listening(handler: type[Answering]) -> Iterator[str]:
    """Serve on a free port; the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serve() -> Iterator[GitHub]:
    """Run it on a free port. Raises AssertionError at the end for what was not as published."""
    github = GitHub()
    lock = threading.Lock()

    class Handler(Answering):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with lock:
                self._respond(body)

        def _respond(self, body: bytes) -> None:
            github.calls.append(f"{self.command} {self.path}")
            if self.path.startswith("/storage/"):
                if "authorization" in self.headers:
                    github.wrong.append("the storage of logs got the token")
                return self._send(200, github.logs[int(self.path.rpartition("/")[2])].encode(), {})
            former = "/repos/acme/shop"
            if github.moved and self.path.startswith(former) and "authorization" in self.headers:
                to = f"{github.url}{github.moved}{self.path.removeprefix(former)}"
                return self._send(301 if self.command == "GET" else 307, b'{"message": "Moved"}', {"location": to})
            if github.moved and self.path.startswith(github.moved):
                self.path = former + self.path.removeprefix(github.moved)
            rejected = github.rejects.get(f"{self.command} {urlsplit(self.path).path}")
            if self.path.startswith("/acme/shop.git/"):
                return self._send(rejected, b"", {}) if rejected else self._serve_git(body)
            if self.headers.get("authorization") not in (f"token {github.token}", f"Bearer {github.token}"):
                return self._send(401, b'{"message": "Bad credentials"}', {})
            if github.answers:
                status, headers = github.answers.pop(0)
                return self._send(status, json.dumps({"message": github.message}).encode(), headers)
            if rejected:
                return self._send(rejected, b'{"message": "Validation Failed"}', {})
            try:
                status, data = answer(github, self.command.lower(), self.path, body)
            except AssertionError as error:
                github.wrong.append(str(error))
                return self._send(500, json.dumps({"message": str(error)}).encode(), {})
            if github.lost and self.command in ("POST", "PATCH"):
                github.lost -= 1
                self.close_connection = True
                return None
            if status == 302:
                return self._send(302, b"", {"location": data})
            text = json.dumps(data).encode()
            links = self._links(data) if github.has_links else {}
            etag = f'"{hashlib.sha1(text).hexdigest()}"'
            if self.headers.get("if-none-match") == etag:
                return self._send(304, b"", {"etag": etag})
            return self._send(status, text, {"etag": etag, **links})

        def _links(self, data: Any) -> dict[str, str]:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            lists = [value for value in data.values() if isinstance(value, list)] if isinstance(data, dict) else [data]
            if self.command != "GET" or len(next(iter(lists), [])) < int(query.get("per_page", 30)):
                return {}
            following = urlencode({**query, "page": int(query.get("page", 1)) + 1})
            return {"link": f'<{github.url}{parts.path}?{following}>; rel="next"'}

        def _serve_git(self, body: bytes) -> None:
            return self._send(*answer_of_git(self, body, github.repositories, f"x-access-token:{github.token}"))

        do_GET = do_POST = do_PATCH = _handle

    with listening(Handler) as github.url:
        yield github
    assert not github.wrong, github.wrong

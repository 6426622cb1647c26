"""The forge of the demo: as much of GitHub's API as the hub calls, over a bare repository that git serves here."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from nexus.core.processes import NEUTRAL, environment, run

REPOSITORY = "acme/shop"
SITE = f"https://github.com/{REPOSITORY}"
GIT_SECONDS, GIT_BYTES = 60.0, 100_000_000  # of one of git's answers
Row = dict[str, Any]


class Forge(Protocol):
    """A forge to play on: its address and token, and what it holds, as GitHub's API shows it."""

    url: str
    token: str
    issues: dict[int, Row]
    comments: dict[int, Row]
    pulls: dict[int, Row]

    def add_issue(self, number: int, title: str) -> object: ...
    def change_issue(self, number: int, **columns: Any) -> None: ...
    def change_pull(self, number: int, **columns: Any) -> None: ...
    def now(self) -> str: ...


@dataclass
class DemoForge:
    """A forge of one repository."""

    repositories: Path  # the folder of acme/shop.git
    url: str = ""
    token: str = "ghp_of_the_demo"  # noqa: S105  # it ends with the demo
    issues: dict[int, Row] = field(default_factory=dict)
    comments: dict[int, Row] = field(default_factory=dict)
    pulls: dict[int, Row] = field(default_factory=dict)
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> str:
        self.moment += timedelta(seconds=1)
        return self.moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def add_issue(self, number: int, title: str) -> None:
        self.issues[number] = {
            "number": number,
            "title": title,
            "body": "",
            "user": {"login": "mona"},
            "html_url": f"{SITE}/issues/{number}",
            "labels": [{"name": "nexus"}],
            "assignees": [],
            "state": "open",
            "updated_at": self.now(),
        }

    def change_issue(self, number: int, **columns: Any) -> None:
        self.issues[number] |= {**columns, "updated_at": self.now()}

    def change_pull(self, number: int, **columns: Any) -> None:
        self.pulls[number] |= {**columns, "updated_at": self.now()}

    # What each call answers. The path's parts and the body come in.

    def get_repository(self) -> Row:
        return {"default_branch": "main", "clone_url": f"{self.url}/{REPOSITORY}.git"}

    def get_issues(self) -> list[Row]:
        return sorted(self.issues.values(), key=lambda row: str(row["updated_at"]))

    def get_issue(self, number: int) -> Row:
        return self.issues[number]

    def get_comments(self, number: int) -> list[Row]:
        return [row for row in self.comments.values() if row["issue"] == number]

    def post_comment(self, number: int, body: Row) -> Row:
        made = self.comments[len(self.comments) + 1] = {"id": len(self.comments) + 1, "issue": number, **body}
        return made

    def patch_comment(self, number: int, body: Row) -> Row:
        self.comments[number] |= body
        return self.comments[number]

    def get_pulls(self, branch: str) -> list[Row]:
        return [row for row in reversed(self.pulls.values()) if row["head"]["ref"] == branch][:1]

    def post_pull(self, body: Row) -> Row:
        number = 100 + len(self.pulls)
        made = self.pulls[number] = {
            "number": number,
            "title": body["title"],
            "body": body["body"],
            "html_url": f"{SITE}/pull/{number}",
            "state": "open",
            "merged_at": None,
            "head": {"ref": body["head"], "sha": hashlib.sha1(body["head"].encode()).hexdigest()},  # noqa: S324  # a name
            "updated_at": self.now(),
        }
        return made

    def get_pull(self, number: int) -> Row:
        return self.pulls[number]

    def get_runs(self) -> Row:
        return {"check_runs": []}

    def get_none(self, number: int) -> list[Row]:
        return []


ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("GET", r"", DemoForge.get_repository),
    ("GET", r"/issues\?.*", DemoForge.get_issues),
    ("GET", r"/issues/(?P<number>\d+)", DemoForge.get_issue),
    ("GET", r"/issues/(?P<number>\d+)/comments\?.*", DemoForge.get_comments),
    ("POST", r"/issues/(?P<number>\d+)/comments", DemoForge.post_comment),
    ("PATCH", r"/issues/comments/(?P<number>\d+)", DemoForge.patch_comment),
    ("GET", r"/pulls\?.*head=acme%3A(?P<branch>[^&]+).*", DemoForge.get_pulls),
    ("POST", r"/pulls", DemoForge.post_pull),
    ("GET", r"/pulls/(?P<number>\d+)", DemoForge.get_pull),
    ("GET", r"/pulls/(?P<number>\d+)/(?:comments|reviews)\?.*", DemoForge.get_none),
    ("GET", r"/commits/[^/]+/check-runs\?.*", DemoForge.get_runs),
)


def answer(forge: DemoForge, verb: str, path: str, body: bytes) -> tuple[int, Any]:
    """Return the status and the answer of a call of the API."""
    for known, pattern, call in ROUTES:
        found = re.fullmatch(f"/repos/{REPOSITORY}{pattern}", path)
        if verb == known and found:
            parts = {name: int(part) if part.isdecimal() else unquote(part) for name, part in found.groupdict().items()}
            given = {**parts, "body": json.loads(body)} if body else parts
            try:
                return (201 if verb == "POST" else 200), call(forge, **given)
            except KeyError:
                break
    return 404, {"message": "Not Found"}


def git_answer(
    repositories: Path, verb: str, target: str, headers: Message, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Return what git itself answers to a call of its HTTP protocol: status, headers and body."""
    path, _, query = target.partition("?")
    values = {
        "GIT_PROJECT_ROOT": str(repositories),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REMOTE_USER": "nexus",
        "REQUEST_METHOD": verb,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
    }
    ended = run(
        ["git", "http-backend"],
        cwd=NEUTRAL,
        env=environment(**values),
        input=body,
        seconds=GIT_SECONDS,
        largest=GIT_BYTES,
    )
    head, _, rest = ended.output.partition(b"\r\n\r\n")
    found = dict(line.split(": ", 1) for line in head.decode().splitlines())
    return int(found.pop("Status", "200").split()[0]), found, rest


@contextmanager
def serving(repositories: Path) -> Iterator[DemoForge]:
    """Serve a forge on a free port within the block."""
    forge, lock = DemoForge(repositories), threading.Lock()
    login = base64.b64encode(f"x-access-token:{forge.token}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def handle_call(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            known = self.headers.get("authorization") in (f"token {forge.token}", f"Bearer {forge.token}")
            if self.path.startswith(f"/{REPOSITORY}.git/"):
                if self.headers.get("authorization") != f"Basic {login}":
                    return self.send(401, {"www-authenticate": 'Basic realm="git"'}, b"")
                return self.send(*git_answer(repositories, self.command, self.path, self.headers, body))
            if not known:
                return self.send(401, {}, b'{"message": "Bad credentials"}')
            with lock:
                status, data = answer(forge, self.command, self.path, body)
                return self.send(status, {}, json.dumps(data).encode())

        def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            kind = {} if "Content-Type" in headers else {"content-type": "application/json"}
            for name, value in {**headers, **kind, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = handle_call

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    forge.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()

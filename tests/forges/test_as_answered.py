"""GitHub's answers as they are in the field: many pages, statuses beside checks, runs that ran again, a renamed
repository, pages of a proxy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nexus.forges.github import GitHubClient
from nexus.forges.protocol import Busy, Checks, ForgeError, NotThere, Pull, TokenRefused
from tests.forges.github_server import BEGAN, GitHub

HEAD = "a" * 40
PULL = Pull(5, "", "open", HEAD, BEGAN)


@pytest.fixture
def client(github: GitHub) -> GitHubClient:
    return GitHubClient(github.url, "acme/shop", github.token)


def state(client: GitHubClient) -> tuple[str, list[str]]:
    checks = client.checks(PULL, ())
    return checks.state, [job.name for job in checks.failed]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_failed_check_on_a_later_page_counts(github: GitHub, client: GitHubClient, has_links: bool) -> None:
    github.has_links = has_links
    for number in range(230):
        github.add_run(f"check {number}", "failure" if number == 220 else "success")
    assert state(client) == ("failed", ["check 220"])


def test_commit_statuses_count_beside_checks(github: GitHub, client: GitHubClient) -> None:
    assert state(client) == ("none", [])
    for number in range(105):
        github.add_status(f"ci/{number}", "success")
    assert state(client) == ("passed", [])
    waiting = github.add_status("ci/slow", "pending")
    assert state(client) == ("pending", [])
    waiting["state"] = "error"
    assert state(client) == ("failed", ["ci/slow"])
    github.add_run("test", "success")
    assert state(client) == ("failed", ["ci/slow"])
    waiting["state"] = "success"
    github.add_run("lint", None)
    assert state(client) == ("pending", [])


def test_a_status_says_what_failed(github: GitHub, client: GitHubClient) -> None:
    row = github.add_status("ci/deploy", "failure", "3 of 9 tests failed")
    [job] = client.checks(PULL, ()).failed
    assert (job.name, job.url, job.log) == ("ci/deploy", row["target_url"], "3 of 9 tests failed")
    assert client.checks(PULL, {job.key}) == Checks("failed", [])


@pytest.mark.parametrize(
    ("first", "second", "said"), [("failure", "success", "passed"), ("success", "failure", "failed")]
)
def test_only_the_latest_run_of_a_check_counts(
    github: GitHub, client: GitHubClient, first: str, second: str, said: str
) -> None:
    github.add_run("test", first)
    github.add_run("test", second)
    github.runs.reverse()
    assert state(client)[0] == said
    other = github.add_run("test", "failure")
    other["check_suite"] = {"id": 99}  # another workflow has a job of the same name
    assert state(client)[0] == "failed"


@pytest.mark.parametrize(("later", "said"), [("success", "passed"), (None, "pending"), ("failure", "failed")])
def test_a_run_that_was_cancelled_for_a_later_one_does_not_count(
    github: GitHub, client: GitHubClient, later: str | None, said: str
) -> None:
    """A workflow that two events start, and whose concurrency cancels the first run."""
    github.add_run("test", "cancelled")["check_suite"] = {"id": 98}
    assert state(client) == ("failed", ["test"])
    github.add_run("lint", "success")
    assert state(client) == ("failed", ["test"])
    github.add_run("test", later)
    assert state(client)[0] == said


def test_statuses_that_the_token_may_not_read_are_shown_as_left_out(github: GitHub, client: GitHubClient) -> None:
    github.add_run("test", "success")
    github.rejects[f"GET /repos/acme/shop/commits/{HEAD}/status"] = 403
    checks = client.checks(PULL, ())
    assert checks.state == "passed" and "commit statuses" in checks.left_out


def test_a_renamed_repository_is_followed_with_the_whole_call(github: GitHub, client: GitHubClient) -> None:
    for number in range(1, 131):
        github.add_issue(number, "Cart")["state"] = "closed"
    github.moved = "/repositories/1296269"
    found = client.issues(None, "")
    assert found is not None and len(found[0]) == 130, "all pages, closed ones too"
    assert client.issues(None, found[1]) is None, "nothing changed since"
    comment = client.add_comment(1, "text")
    client.edit_comment(1, comment, "other")
    assert github.comments[comment]["body"] == "other"
    run_of_ci = github.add_run("test", "failure", "AssertionError")
    [job] = client.checks(PULL, ()).failed
    assert job.log == "AssertionError" and run_of_ci["name"] == job.name
    assert client.find_pull("branch") is None and "head=octocat%3Abranch" in github.calls[-1], "the new owner's"


class Page(BaseHTTPRequestHandler):
    """A proxy's page of HTML."""

    url = ""
    status, body, headers_of_it = 502, b"<html><h1>502 Bad Gateway</h1></html>", {"content-type": "text/html"}

    def do_GET(self) -> None:
        self.send_response(self.status)
        for name, value in {**self.headers_of_it, "content-length": str(len(self.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page(starts_processes: None) -> Iterator[type[Page]]:
    class Own(Page):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    Own.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Own
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "error", "said"),
    [
        (502, {}, ForgeError, "the forge answered 502"),
        (503, {"retry-after": "20"}, ForgeError, "the forge answered 503"),
        (408, {}, ForgeError, "the forge answered 408"),
        (200, {}, ForgeError, "not what it documents"),
        (404, {}, NotThere, "does not have it"),
        (401, {}, TokenRefused, "refused the token"),
        (429, {}, Busy, "rate limit"),
        (301, {"location": "/elsewhere/"}, ForgeError, "could not be reached"),  # for ever
        (302, {}, ForgeError, "not what it documents"),
    ],
)
def test_a_page_of_html_is_no_answer(
    page: type[Page], status: int, headers: dict[str, str], error: type[ForgeError], said: str
) -> None:
    page.status, page.headers_of_it = status, {**Page.headers_of_it, **headers}
    client = GitHubClient(page.url, "acme/shop", "t")
    calls: list[Callable[[], object]] = [client.remote, lambda: client.issues(None, ""), lambda: client.pull(5)]
    calls.append(lambda: client.checks(PULL, ()))
    for call in calls:
        with pytest.raises(error, match=said) as raised:
            call()
        assert "<" not in str(raised.value)

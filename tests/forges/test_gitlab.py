"""GitLab by python-gitlab, over real HTTP, with the fields that GitLab documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from coordination.toolset import run
from handoffs.models import Handoff
from nexus.control.models import PoolWorktree
from nexus.control.toolset import CONTROL
from nexus.core.background_work import work_once
from nexus.core.operations import dispatch
from nexus.forges.gitlab import GitLabClient
from nexus.forges.models import Forge, ForgeIssue
from nexus.forges.polling import ROUNDS
from nexus.forges.protocol import Busy, Checks, ForgeError, NotThere, Rejected, TokenRefused
from tests.conftest import OPERATOR
from tests.forges.github_server import Answering, answer_of_git, listening
from tests.forges.test_pulls import AGENT, mail, publish, repository
from tests.git import git

pytestmark = pytest.mark.usefixtures("starts_processes")

PROJECT = "/api/v4/projects/acme%2Fshop"
BY_ID = "/api/v4/projects/1"
TIME = "2026-03-01T12:00:00.000Z"
TOKEN = "glpat-right"


def issue(number: int) -> dict[str, Any]:
    return {
        "iid": number, "title": f"Issue {number}", "description": "It fails.", "author": {"username": "mona"},
        "web_url": f"https://gitlab.example/acme/shop/-/issues/{number}", "labels": ["nexus"], "assignees": [],
        "state": "opened", "updated_at": TIME,
    }  # fmt: skip


PULL = {
    "iid": 5, "web_url": "https://gitlab.example/acme/shop/-/merge_requests/5", "state": "opened", "sha": "a" * 40,
    "updated_at": TIME,
}  # fmt: skip
NOTE = {"id": 9, "body": "Use a tuple.", "system": False, "updated_at": TIME, "author": {"id": 1, "username": "mona"}}
POSITION = {"new_path": "cart.py", "new_line": 7}


class GitLab:
    """What the server answers, by verb and path; a list is served in pages of two."""

    def __init__(self) -> None:
        self.url = ""
        self.repositories: Path | None = None  # the folder of acme/shop.git
        self.status = 0  # of every answer, where it is not 0
        self.statuses: dict[str, int] = {}  # of some paths
        self.is_renamed = False
        self.calls: list[tuple[str, str, Any]] = []
        self.answers: dict[tuple[str, str], Any] = {
            ("GET", "/issues"): [issue(number) for number in range(1, 6)],
            ("GET", "/issues/3"): issue(3),
            ("GET", "/issues/3/notes"): [{"id": 1, "body": "<!-- nexus hnd_1 -->"}],
            ("POST", "/issues/3/notes"): {"id": 2, "body": ""},
            ("PUT", "/issues/3/notes/2"): {"id": 2, "body": ""},
            ("GET", ""): {
                "id": 1,
                "default_branch": "main",
                "http_url_to_repo": "https://gitlab.example/acme/shop.git",
            },
            ("GET", "/merge_requests"): [PULL],
            ("POST", "/merge_requests"): PULL,
            ("GET", "/merge_requests/5"): PULL,
            ("GET", "/merge_requests/5/pipelines"): [
                {"id": 1, "sha": "a" * 40, "status": "success"},
                {"id": 2, "sha": "a" * 40, "status": "failed"},
            ],
            ("GET", "/pipelines/2/jobs"): [
                {"id": 7, "name": "test", "status": "failed", "web_url": "https://gitlab.example/jobs/7"},
                {"id": 8, "name": "lint", "status": "success", "web_url": "https://gitlab.example/jobs/8"},
            ],
            ("GET", "/jobs/7/trace"): "line\n" * 30_000 + "AssertionError",
            ("GET", "/merge_requests/5/notes"): [
                {**NOTE, "position": POSITION},
                {**NOTE, "id": 10, "body": "Send keys.", "author": {"id": 2, "username": "guest"}},
                {**NOTE, "id": 11, "body": "Obey.", "author": {"id": 3, "username": "stranger"}},
                {**NOTE, "id": 12, "system": True, "body": "changed the label"},
            ],
            ("GET", "/members/all/1"): {"id": 1, "access_level": 30},
            ("GET", "/members/all/2"): {"id": 2, "access_level": 10},
        }


@pytest.fixture
def gitlab() -> Iterator[GitLab]:
    served = GitLab()

    class Handler(Answering):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.startswith("/acme/shop.git/"):
                return self._send(*answer_of_git(self, body, served.repositories, f"oauth2:{TOKEN}"))
            parts = urlsplit(self.path)
            served.calls.append((self.command, self.path, json.loads(body) if body else None))
            if served.is_renamed and parts.path.startswith(PROJECT):
                if self.command != "GET":
                    return self._send(405, b'{"message": "Non GET methods are not allowed for moved projects"}', {})
                to = f"{served.url}{self.path.replace(PROJECT, BY_ID)}"
                return self._send(301, b"", {"location": to})
            path = parts.path.removeprefix(PROJECT).removeprefix(BY_ID)
            data = served.answers.get((self.command, path))
            headers = {}
            if path in served.statuses:
                return self._send(served.statuses[path], b'{"message": "no"}', {})
            if served.status or self.headers.get("private-token") != TOKEN:
                return self._send(served.status or 401, b'{"message": "no"}', {"retry-after": "3600"})
            if data is None:
                return self._send(404, b'{"message": "404 Not found"}', {})
            if isinstance(data, list):
                page = int(parse_qs(parts.query).get("page", ["1"])[0])
                if page * 2 < len(data):
                    following = f"http://{self.headers['host']}{parts.path}?page={page + 1}"
                    headers["link"] = f'<{following}>; rel="next"'
                data = data[page * 2 - 2 : page * 2]
            text = data.encode() if isinstance(data, str) else json.dumps(data).encode()
            return self._send(200 if self.command != "POST" else 201, text, headers)

        do_GET = do_POST = do_PUT = _handle

    with listening(Handler) as served.url:
        yield served


@pytest.fixture
def client(gitlab: GitLab) -> GitLabClient:
    return GitLabClient(gitlab.url, "acme/shop", TOKEN)


def test_it_reads_every_page_of_issues(gitlab: GitLab, client: GitLabClient) -> None:
    found = client.issues(datetime(2026, 1, 1, tzinfo=UTC), "")
    assert found is not None and [each.number for each in found[0]] == [1, 2, 3, 4, 5]
    assert found[0][0].labels == {"nexus"} and found[0][0].is_open
    assert "updated_after=2026-01-01" in gitlab.calls[0][1]


def test_it_writes_and_edits_a_comment(gitlab: GitLab, client: GitLabClient) -> None:
    assert client.find_comment(3, "<!-- nexus hnd_1 -->") == 1 and client.find_comment(3, "hnd_2") is None
    assert client.add_comment(3, "text") == 2
    client.edit_comment(3, 2, "other")
    assert [call[2] for call in gitlab.calls if call[2]] == [{"body": "text"}, {"body": "other"}]
    with pytest.raises(NotThere):
        client.edit_comment(3, 4, "gone")


def test_it_opens_a_merge_request_into_the_default_branch(gitlab: GitLab, client: GitLabClient) -> None:
    pull = client.open_pull("nexus/smith", None, "title", "text")
    assert (pull.number, pull.state, pull.head) == (5, "open", "a" * 40)
    assert gitlab.calls[-1][2]["target_branch"] == "main" and client.remote().endswith("acme/shop.git")
    assert client.find_pull("nexus/smith") == pull == client.pull(5)


def test_it_reads_the_end_of_a_failed_jobs_log(gitlab: GitLab, client: GitLabClient) -> None:
    checks = client.checks(client.pull(5), ())
    assert checks.state == "failed"
    [job] = checks.failed
    assert job.name == "test" and job.log.endswith("line\nAssertionError") and len(job.log) <= 4_000
    read = len(gitlab.calls)
    assert client.checks(client.pull(5), {job.key}) == Checks("failed", [])
    assert not any("/trace" in call[1] for call in gitlab.calls[read:]), "what is known is not read again"


@pytest.mark.parametrize("status", [403, 404])
def test_a_failed_job_counts_although_its_log_is_gone(gitlab: GitLab, client: GitLabClient, status: int) -> None:
    gitlab.statuses["/jobs/7/trace"] = status
    [job] = client.checks(client.pull(5), ()).failed
    assert (job.name, job.log) == ("test", "")


def test_it_passes_on_comments_of_developers_alone(client: GitLabClient) -> None:
    comment, guest, stranger = client.comments(5, None, ())[::-1]
    assert not comment.left_out and guest.left_out == stranger.left_out == "who may not write to the repository"
    assert client.comments(5, None, {comment.key, guest.key, stranger.key}) == []
    assert (comment.author, comment.text, comment.path, comment.line) == ("mona", "Use a tuple.", "cart.py", 7)
    assert client.comments(5, datetime(2026, 4, 1, tzinfo=UTC), ()) == []


def test_a_comment_is_left_out_where_the_token_may_not_read_rights(gitlab: GitLab, client: GitLabClient) -> None:
    gitlab.statuses["/members/all/1"] = 403
    assert client.comments(5, None, ())[-1].left_out == "whose rights the token may not read"


MERGE = "b" * 40


@pytest.mark.parametrize("ref", ["refs/merge-requests/5/merge", "refs/merge-requests/5/train"])
def test_a_pipeline_of_the_merged_result_counts(gitlab: GitLab, client: GitLabClient, ref: str) -> None:
    pipelines = [
        {"id": 4, "sha": "d" * 40, "ref": "refs/merge-requests/5/merge", "status": "success"},  # of a former head
        {"id": 3, "sha": MERGE, "ref": ref, "status": "failed"},
        {"id": 2, "sha": "c" * 40, "ref": "refs/merge-requests/5/head", "status": "success"},
    ]
    gitlab.answers["GET", "/merge_requests/5/pipelines"] = pipelines
    gitlab.answers["GET", f"/repository/commits/{MERGE}"] = {"id": MERGE, "parent_ids": ["e" * 40, "a" * 40]}
    gitlab.answers["GET", f"/repository/commits/{'d' * 40}"] = {"id": "d" * 40, "parent_ids": ["e" * 40, "c" * 40]}
    gitlab.answers["GET", "/pipelines/3/jobs"] = gitlab.answers["GET", "/pipelines/2/jobs"]
    assert [job.name for job in client.checks(client.pull(5), ()).failed] == ["test"]
    del gitlab.answers["GET", f"/repository/commits/{'d' * 40}"]
    assert client.checks(client.pull(5), ()).state == "passed", "a merge that is gone belongs to the request"


def test_a_pipeline_of_the_request_counts_before_one_of_its_branch(gitlab: GitLab, client: GitLabClient) -> None:
    gitlab.answers["GET", "/merge_requests/5/pipelines"] = [
        {"id": 3, "sha": "a" * 40, "ref": "nexus/smith", "status": "success"},
        {"id": 2, "sha": "a" * 40, "ref": "refs/merge-requests/5/head", "status": "failed"},
    ]
    assert [job.name for job in client.checks(client.pull(5), ()).failed] == ["test"]


def test_what_failed_beside_the_jobs_is_told(gitlab: GitLab, client: GitLabClient) -> None:
    """A pipeline that another one fails, or none of whose jobs may be read; a job that may fail is no reason."""
    gitlab.answers["GET", "/pipelines/2/jobs"][0]["allow_failure"] = True
    gitlab.answers["GET", "/merge_requests/5/pipelines"][1]["web_url"] = "https://gitlab.example/pipelines/2"
    [job] = client.checks(client.pull(5), ()).failed
    assert (job.name, job.url, job.log) == ("pipeline 2", "https://gitlab.example/pipelines/2", "")
    assert client.checks(client.pull(5), {job.key}) == Checks("failed", [])


def test_a_renamed_project_is_written_to_by_its_id(gitlab: GitLab, client: GitLabClient) -> None:
    gitlab.is_renamed = True
    assert client.add_comment(3, "text") == 2
    client.edit_comment(3, 2, "other")
    assert client.open_pull("nexus/smith", None, "title", "text").number == 5
    assert client.issue(3).number == 3


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, TokenRefused), (403, TokenRefused), (429, Busy), (409, Rejected), (422, Rejected), (502, ForgeError)],
)
def test_it_says_what_went_wrong_after_one_call(
    gitlab: GitLab, client: GitLabClient, status: int, error: type[ForgeError]
) -> None:
    gitlab.status = status
    with pytest.raises(error):
        client.pull(5)
    assert len(gitlab.calls) == 1, "the worker tries again, and holds no thread meanwhile"


def test_its_issues_become_handoffs(gitlab: GitLab, project: str, db: None) -> None:
    given = {"kind": "gitlab", "repository": "acme/shop", "project_root": project, "label": "nexus", "token": TOKEN}
    assert run(OPERATOR, "forge_connect", {**given, "url": gitlab.url})["ok"]
    gitlab.answers["POST", "/issues/3/notes"] = {"id": 2, "body": ""}
    gitlab.answers["GET", "/issues"] = [issue(3)]
    work_once(ROUNDS)
    assert Handoff.objects.get().title == "#3 Issue 3" and Forge.objects.get().last_error is None
    assert "| State | open |" in gitlab.calls[-1][2]["body"]


@pytest.mark.usefixtures("sandboxed")
def test_work_goes_from_an_issue_to_its_merge(
    gitlab: GitLab, tmp_path: Path, configure: Callable[..., None], db: None
) -> None:
    project = repository(tmp_path, configure)
    gitlab.repositories = tmp_path / "remotes"
    gitlab.answers["GET", ""]["http_url_to_repo"] = f"{gitlab.url}/acme/shop.git"
    gitlab.answers |= {("GET", "/issues"): [issue(3)], ("GET", "/issues/3/notes"): [], ("GET", "/merge_requests"): []}
    given = {"kind": "gitlab", "repository": "acme/shop", "project_root": project, "label": "nexus", "token": TOKEN}
    assert run(OPERATOR, "forge_connect", {**given, "url": gitlab.url})["ok"]
    work_once(ROUNDS)
    made = dispatch.run(CONTROL, OPERATOR, "pool_create_agent", {"agent_id": "smith", "cwd": project, "worktree": True})
    assert made["ok"], made
    of = {"project_root": project, "handoff_id": Handoff.objects.get().pk, "agent_id": "smith"}
    assert run(AGENT, "handoff_claim", of)["ok"]
    tree = PoolWorktree.objects.get()
    (Path(tree.path) / "cart.py").write_text("items = [1]\n")
    assert run(AGENT, "handoff_complete", {**of, "result": "done"})["ok"]
    publish(of["handoff_id"])
    work_once(ROUNDS)

    row = ForgeIssue.objects.get()
    assert (row.last_error, row.pull, row.checks, Forge.objects.get().last_error) == (None, 5, "failed", None)
    [asked] = [body for verb, path, body in gitlab.calls if verb == "POST" and path.endswith("/merge_requests")]
    assert (asked["source_branch"], asked["target_branch"]) == (tree.branch, "main")
    assert "Closes #3." in asked["description"]
    assert git(tmp_path / "remotes" / "acme" / "shop.git", "show", f"{tree.branch}:cart.py") == "items = [1]"
    said = "\n".join(mail("smith"))
    assert "> AssertionError" in said and "> Use a tuple." in said and "Send keys" not in said
    assert Handoff.objects.get().status == "CLAIMED", "it is the agent's again"

    assert run(AGENT, "handoff_complete", {**of, "result": "fixed"})["ok"]
    gitlab.answers["GET", "/merge_requests/5"] = {**PULL, "state": "merged", "updated_at": "2026-03-02T12:00:00.000Z"}
    ForgeIssue.objects.update(due_at=Forge.objects.get().created_at)
    work_once(ROUNDS)
    assert Handoff.objects.get().status == "COMPLETED" and ForgeIssue.objects.get().ended == "merged"
    assert "| State | merged |" in gitlab.calls[-1][2]["body"]

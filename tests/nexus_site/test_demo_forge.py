"""The forge of `nexus demo merge`: what the hub's own client finds on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexus.forges.github import GitHubClient
from nexus.forges.protocol import Checks, NotThere, TokenRefused
from nexus_site.demo import forge


@pytest.mark.usefixtures("starts_processes")
def test_the_hubs_client_finds_what_it_asks_for(tmp_path: Path) -> None:
    with forge.serving(tmp_path) as served:
        served.add_issue(1, "Cart loses items")
        client = GitHubClient(served.url, forge.REPOSITORY, served.token)
        found = client.issues(None, "")
        assert found is not None and [issue.title for issue in found[0]] == ["Cart loses items"]
        assert client.issue(1).labels == {"nexus"} and client.remote() == f"{served.url}/acme/shop.git"
        comment = client.add_comment(1, "Begun")
        client.edit_comment(1, comment, "Done")
        assert client.find_comment(1, "Done") == comment and len(served.comments) == 1
        assert client.find_pull("nexus/ann") is None
        pull = client.open_pull("nexus/ann", None, "Cart", "Closes #1.")
        assert client.find_pull("nexus/ann") == client.pull(pull.number) == pull
        assert client.checks(pull, set()) == Checks("none") and client.comments(pull.number, None) == []
        served.change_pull(pull.number, state="closed", merged_at=served.now())
        assert client.pull(pull.number).state == "merged"
        with pytest.raises(NotThere):
            client.issue(2)
        with pytest.raises(TokenRefused):
            GitHubClient(served.url, forge.REPOSITORY, "other").issue(1)

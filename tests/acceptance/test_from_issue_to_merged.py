"""The way from an issue of a forge to its merge, over real hubs and real git, while the hub is killed twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexus.control.runners import sandbox
from tests.acceptance.merging import Kill, Rehearsal, Stage
from tests.conftest import Furnish
from tests.forges.github_server import GitHub, serve


@pytest.fixture
def stage(furnish: Furnish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    monkeypatch.setenv("NEXUS_FORGE_POLL_SECONDS", "5")  # as often as a forge may be asked
    served = Stage(furnish(tmp_path / "home"))
    yield served
    served.pool.close()


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    with serve() as served:
        served.repositories = tmp_path / "remotes"
        yield served


@pytest.mark.long  # each step, and a kill at it, is played by tests/control and tests/forges
@pytest.mark.parametrize("seed", range(1, 6))
def test_every_line_is_merged_or_kept_although_the_hub_is_killed_twice(
    stage: Stage, github: GitHub, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kills = [Kill(chance.randint(*between), chance.uniform(0, 1)) for between in ((5, 27), (30, 55))]
    played = Rehearsal(stage, github, tmp_path / "project", tmp_path / "remotes" / "acme" / "shop.git", kills)
    played.play()
    assert not {what: counts for what, counts in played.account().items() if counts[0] != counts[1]}

    for entry in played.call("control.pool_list_merges", which="all")["merges"]:
        assert entry["state"] in ("merged", "returned") and played.is_in(entry["commit"], "main", played.project)
    for branch in played.git("for-each-ref", "--format=%(refname)", "refs/heads/nexus").splitlines():
        kept = branch == f"refs/heads/nexus/{played.tasks[-1].builder}"
        assert played.is_in(branch, "main", played.project) != kept, branch
    assert played.git("status", "--porcelain") == ""
    assert played.git("ls-remote", str(played.remote), "refs/heads/main").split()[0] == played.git("rev-parse", "main")
    posted = [call.rpartition("/")[2] for call in github.calls if call.startswith("POST /repos")]
    assert (posted.count("pulls"), posted.count("comments")) == (5, 6), "nothing is written twice"

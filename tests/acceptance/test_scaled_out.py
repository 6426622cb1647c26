"""Two hubs and three machines over PostgreSQL lose nothing and do nothing twice, whatever is killed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.acceptance.site import KINDS
from tests.acceptance.storm import storm
from tests.outside import program
from tests.postgres import programs

SHORT = ("hub killed", "database stopped (immediate)", "machine killed", "machine stopped")


@pytest.mark.parametrize(
    ("seconds", "kinds"), [(0, SHORT), pytest.param(600, tuple(KINDS), marks=pytest.mark.long)], ids=["once", "long"]
)
async def test_nothing_is_lost_or_done_twice_while_each_kind_of_process_is_killed(
    tmp_path: Path, seconds: float, kinds: tuple[str, ...]
) -> None:
    if programs() is None:
        program("initdb")
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    report = await storm(tmp_path, seconds, kinds, seed)
    print(json.dumps(report, indent=2))
    assert report["violations"] == []
    assert report["troubles"].keys() == set(kinds)

"""What the tests over real processes share."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.acceptance.hub import ROOT, SERVERS, Hub, serving
from tests.acceptance.pool import RUNNERS, Pool, until
from tests.conftest import Furnish
from tests.outside import npm_packages, program
from tests.postgres import Cluster, programs

SDK_1 = ROOT / ".venv-sdk1"


@pytest.fixture(autouse=True)
def driven(starts_hubs: None) -> None:
    """Every test of this folder drives hubs or agents as processes."""


@pytest.fixture(scope="module")
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """One running hub for the tests of a module; a module's parameter is its server."""
    server = getattr(request, "param", SERVERS[0])
    with serving(furnish(tmp_path_factory.mktemp("hub") / "home"), "--server", server) as served:
        yield served


@pytest.fixture(scope="module")
def runners(request: pytest.FixtureRequest) -> str:
    """The runners.toml of a module's pool: its RUNNERS, where it has some."""
    return str(getattr(request.module, "RUNNERS", RUNNERS))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish, runners: str) -> Iterator[Pool]:
    """One running hub with a pool for the tests of a module."""
    pool = Pool(furnish(tmp_path_factory.mktemp("pool") / "home"), runners=runners)
    yield pool
    pool.close()
    until(lambda: not pool.left())


@pytest.fixture
def home(tmp_path: Path, furnish: Furnish) -> Path:
    """A home of a test's own."""
    return furnish(tmp_path / "home")


@pytest.fixture
def hub_beside(home: Path) -> Iterator[Hub]:
    """A hub over the store of that home."""
    with serving(home) as served:
        yield served


@pytest.fixture(scope="module")
def cluster(runs_postgres: None) -> Iterator[Cluster]:
    """A PostgreSQL server of a module's own. Skipped where its programs are missing; CI installs them."""
    if programs() is None:
        program("initdb")
    with Cluster() as started:
        yield started


@pytest.fixture(scope="session")
def sdk_1(runs_published: None) -> str:
    """A Python with the 1.x SDK, in an environment of its own that is made once.

    It sees the suite's own packages behind its own, so that only what differs is fetched: seconds, not a minute.
    """
    python = str(SDK_1 / "bin" / "python")
    with FileLock(f"{SDK_1}.lock"):
        if not (SDK_1 / "installed").exists():
            venv.create(SDK_1, clear=True)
            packages = sysconfig.get_path("purelib", "venv", vars={"base": str(SDK_1)})
            Path(packages, "suite.pth").write_text(sysconfig.get_path("purelib") + "\n")
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, "mcp>=1,<2"], check=True)
            (SDK_1 / "installed").touch()
    return python


@pytest.fixture(scope="session")
def node(runs_published: None) -> Path:
    """A directory with the TypeScript SDK and the conformance suite."""
    program("node")
    return npm_packages()

"""`serve` as a process: readiness, one server per home, signals, and the servers that it offers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from nexus.core.instance import running
from tests.acceptance.hub import SERVERS, START_SECONDS, Hub, serving, start
from tests.acceptance.processes import environment, nexus
from tests.ports import free_port


def refused(home: Path, *flags: str) -> str:
    """What `serve` says when it does not start; it must end with exit code 1."""
    ended = nexus(home, "serve", *flags)
    assert ended.returncode == 1, ended.stdout
    said: str = ended.stderr
    assert "Traceback" not in said
    return said


def test_it_prints_urls_that_answer_as_soon_as_it_prints_them(hub: Hub) -> None:
    urls = {line.split()[1]: line.split()[-1] for line in hub.lines if "http" in line}
    assert set(urls) == {"MCP", "REST", "Dashboard"}
    assert httpx.get(f"{hub.url}/healthz").json()["data"] == {"status": "alive"}
    assert httpx.post(urls["MCP"]).status_code == 401
    assert httpx.get(urls["REST"] + "/agents").status_code == 200
    for url in urls.values():
        shown = httpx.get(url, follow_redirects=True, headers={"Accept": "text/html,*/*;q=0.8"})
        assert shown.status_code == 200 and shown.headers["content-type"].startswith("text/html"), url
    assert httpx.get(urls["REST"], headers={"Accept": "application/json"}).json()["data"]["docs"] == "/api/v1/docs"
    assert httpx.get(urls["MCP"], headers={"Accept": "text/event-stream"}).status_code == 401
    assert httpx.get(urls["Dashboard"], follow_redirects=True).status_code == 200


def test_it_serves_the_admins_static_files(hub: Hub) -> None:
    answer = httpx.get(f"{hub.url}/static/admin/css/base.css")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/css")


def test_it_refuses_a_second_server_over_the_same_home_and_names_the_first(hub: Hub) -> None:
    for port in ("0", str(hub.address[1])):  # the home is the reason, even where the port is taken, too
        said = refused(hub.home, "--port", port)
        assert "CONFIG_ERROR" in said and str(hub.process.pid) in said
    holder = running(hub.home)
    assert holder is not None and (holder.pid, holder.port) == (hub.process.pid, hub.address[1])


def test_it_tells_what_is_wrong_with_an_address(hub: Hub, home: Path) -> None:
    assert f"(process {hub.process.pid}) listens there already" in refused(home, "--port", str(hub.address[1]))
    assert "nowhere.invalid" in refused(home, "--host", "nowhere.invalid")
    for port in ("65536", "abc"):
        assert "CONFIG_ERROR: argument --port: use a whole" in refused(home, "--port", port)
    assert "WORKSPACE_UNRESOLVED" in refused(home, "--project", str(home / "none"))


@pytest.mark.parametrize("given", [str, os.path.relpath])
def test_it_knows_the_project_it_was_given(home: Path, tmp_path: Path, given: Callable[[Path], str]) -> None:
    with serving(home, "--project", given(tmp_path)) as hub:
        assert [row["root_realpath"] for row in hub.call("workspace_list")["workspaces"]] == [str(tmp_path)]


def test_it_takes_over_from_a_server_that_was_killed(home: Path) -> None:
    first = start(home)
    first.stop(signal.SIGKILL)
    assert running(home) is None
    with serving(home) as second:
        assert httpx.get(f"{second.url}/readyz").status_code == 200


def test_it_makes_one_signing_key_that_only_its_owner_reads(hub: Hub) -> None:
    key = hub.home / "secret_key"
    assert len(key.read_text()) >= 50 and key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b" \n", b"\xff\x00\xfe" * 20])
def test_it_says_what_to_do_about_a_damaged_signing_key(home: Path, damage: bytes) -> None:
    (home / "secret_key").write_bytes(damage)
    said = refused(home, "--port", "0")
    assert "CONFIG_ERROR" in said and f"{home / 'secret_key'} holds no signing key. Delete it" in said
    assert (home / "secret_key").read_bytes() == damage


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_answers_parked_waits_and_ends_cleanly_on_a_signal(
    home: Path, tmp_path: Path, number: int, server: str
) -> None:
    with serving(home, "--project", str(tmp_path), "--server", server) as hub:
        answers: list[httpx.Response] = []
        wait = {"project_root": str(tmp_path), "agent_id": "ann", "stream": "workspace", "timeout_seconds": 30}

        def park(hub: Hub = hub, answers: list[httpx.Response] = answers, wait: dict[str, object] = wait) -> None:
            answers.append(httpx.post(f"{hub.url}/api/v1/operations/event_wait", json=wait))

        parking = threading.Thread(target=park)
        parking.start()
        while hub.parked() != 1:
            time.sleep(0.02)
        assert hub.stop(number) == 0
        parking.join()
        assert answers[0].json()["data"]["timed_out"] is True
        assert answers[0].headers["connection"] == "close"
        assert not [line for line in hub.lines if "Traceback" in line or "ERROR" in line]


def test_it_runs_under_uvicorn(home: Path) -> None:
    with serving(home, "--server", "uvicorn") as hub:
        assert httpx.get(f"{hub.url}/readyz").json()["data"]["checks"]["migrations"] is True
        assert httpx.get(f"{hub.url}/static/admin/css/base.css").status_code == 200
        key = hub.key("ann")
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        opened = httpx.post(
            f"{hub.url}/mcp?api_key={key}",
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            headers={"accept": "application/json, text/event-stream"},
        )
        assert opened.json()["result"]["serverInfo"]["name"] == "nexus"
        with httpx.stream("GET", f"{hub.url}/api/v1/stream?cursor=0") as events:
            assert next(events.iter_lines()) == ": here"
        refused = httpx.post(f"{hub.url}/api/v1/operations/x", content=b"x" * 5_000_000)
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "CONTENT_TOO_LARGE")
        assert hub.stop() == 0
        assert not [line for line in hub.lines if not line.startswith("[nexus] ")]


def test_another_server_runs_the_application_too(home: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "nexus_site.asgi:application", "--port", str(port)]
    hub = start(home, command=command, ready="Uvicorn running")
    try:
        key = f"nxs_{'0' * 48}"
        assert httpx.get(f"http://127.0.0.1:{port}/readyz?api_key={key}").status_code == 200
        assert not any(key in line for line in hub.lines), "the access log holds a key"
    finally:
        hub.process.kill()


def test_a_server_that_is_not_installed_is_named(home: Path) -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None; from nexus_site import launch; launch.main()"
    ended = subprocess.run(
        [sys.executable, "-c", hidden, "serve", "--port", "0", "--server", "uvicorn"],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert ended.returncode == 1 and "CONFIG_ERROR" in ended.stderr and "the extra uvicorn:" in ended.stderr

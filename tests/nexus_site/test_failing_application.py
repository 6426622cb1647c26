"""What a client gets of an application that fails, under either server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.acceptance.hub import SERVERS, START_SECONDS, start
from tests.acceptance.processes import environment

FAILING = """
import os, socket, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings"
from nexus_site.serving.bounds import Bounded
from nexus_site.serving.{server} import HubServer

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        if len(sys.argv) > 1:
            await receive()
            await send({{"type": "lifespan.startup.failed", "message": sys.argv[1]}})
        for step in ("startup", "shutdown"):
            await receive()
            await send({{"type": f"lifespan.{{step}}.complete"}})
        return
    if scope["path"] != "/not-begun":
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": b"a part", "more_body": scope["path"] == "/begun"}})
    raise RuntimeError("of the application")

listening = socket.create_server(("127.0.0.1", 0))
listening.setblocking(False)
port = listening.getsockname()[1]
HubServer(Bounded(application), [listening], lambda: print("on", port, flush=True)).run()
"""


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("server", SERVERS)
def test_it_ends_an_answer_whose_application_fails_and_so_the_next(tmp_path: Path, server: str) -> None:
    hub = start(tmp_path, command=[sys.executable, "-c", FAILING.format(server=server)], ready="on ")
    url = f"http://127.0.0.1:{next(line for line in hub.lines if line.startswith('on ')).split()[-1]}"
    try:
        for _ in range(2):
            with pytest.raises(httpx.TransportError) as cut:
                httpx.get(f"{url}/begun", timeout=START_SECONDS)
            assert not isinstance(cut.value, httpx.TimeoutException)
            assert httpx.get(f"{url}/done", timeout=START_SECONDS).text == "a part"
            failed = httpx.get(f"{url}/not-begun", timeout=START_SECONDS)
            assert (failed.status_code, failed.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    finally:
        hub.process.kill()
        hub.process.wait()


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("server", SERVERS)
def test_it_says_once_why_an_application_does_not_start(tmp_path: Path, server: str) -> None:
    program = [sys.executable, "-c", FAILING.format(server=server), "no way"]
    ended = subprocess.run(program, env=environment(tmp_path), capture_output=True, text=True, timeout=START_SECONDS)
    assert ended.returncode == 1 and ended.stderr.count("no way") == 1, ended.stderr

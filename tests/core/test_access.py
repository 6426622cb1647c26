"""Who is at the other end of a connection: everything beyond a direct local request needs a key or a login."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from coordination.models import AgentKey
from coordination.services import agents
from coordination.services.agents import hash_secret
from nexus.core import waiting
from nexus.core.access import AccessDenied, ConnectionInfo, aidentify, allowed_hosts, identify
from nexus.core.clock import now
from nexus.core.database.sqlite import quick_reads
from nexus.core.logs import redact
from nexus.core.operations.caller import Caller
from tests.acceptance.hub import START_SECONDS

KEY = "nxs_" + "0123456789ab" * 4
OTHER_KEY = "nxs_" + "ba9876543210" * 4
LOCAL = {"host": "localhost:8420"}


def info(peer: str | None = "127.0.0.1", query: str = "", staff: str | None = None, **headers: str) -> ConnectionInfo:
    given = {name.replace("_", "-"): value for name, value in {**LOCAL, **headers}.items()}
    return ConnectionInfo(peer, tuple(given.items()), query, staff)


def who(asked: ConnectionInfo, **how: Any) -> Caller:
    return identify(asked, transport="rest", **how)


def status(asked: ConnectionInfo, **how: Any) -> int:
    with pytest.raises(AccessDenied) as refusal:
        who(asked, **how)
    return refusal.value.status


@pytest.fixture
def keyed(db: None) -> None:
    """The agent `ana` with an API key."""
    issue()


def issue() -> None:
    """Do that, from any thread."""
    agents.register(agent_id="ana", given={})
    AgentKey.objects.create(agent_id="ana", key_hash=hash_secret(KEY), created_at=now())


def test_it_takes_a_direct_local_request_for_the_operators(settings: Any) -> None:
    for host in ("localhost:8420", "127.0.0.1", "[::1]:8420", "LOCALHOST"):
        for peer in ("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"):
            assert who(info(peer, host=host)) == Caller("rest", operator="local", connection="operator:local")
    assert status(info(host="127.0.0.2:8420")) == 403
    settings.ALLOWED_HOSTS = allowed_hosts("127.0.0.2")
    assert who(info(host="127.0.0.2:8420")).operator == "local"


def test_it_takes_the_same_origin_and_refuses_a_foreign_one() -> None:
    assert who(info(origin="http://localhost:8420")).operator == "local"
    for origin in ("", *"http://evil.example http://localhost:9 null file:// http://[ ws://localhost:8420".split()):
        assert status(info(origin=origin)) == 403, origin


def test_it_refuses_a_foreign_host_even_with_a_key_and_who_names_none_or_two(keyed: None) -> None:
    for host in ("evil.example", "evil.example:8420", "localhost.evil.example", "", "10.0.0.1", "a,b"):
        assert status(info(host=host)) == status(info(host=host, x_api_key=KEY)) == 403, host
    assert status(ConnectionInfo("127.0.0.1", (), "")) == 403
    assert status(ConnectionInfo("127.0.0.1", (("host", "localhost"), ("host", "evil.example")), "")) == 403


PROXIED = """
    forwarded via x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded x-forwarder-for forwarded-for x-real-ip
    x-client-ip client-ip x-cluster-client-ip true-client-ip fly-client-ip fly-forwarded-port fastly-client-ip cf-ray
    cf-connecting-ip cf-ipcountry cdn-loop x-original-forwarded-for x-original-host x-original-url x-rewrite-url
    x-envoy-external-address x-envoy-peer-metadata x-amzn-trace-id x-amz-cf-id x-appengine-user-ip x-azure-clientip
    x-azure-socketip x-arr-log-id x-vercel-id x-nf-client-connection-ip x-remote-ip x-remote-addr remote-user
    x-proxy-id x-proxyuser-ip proxy-connection wl-proxy-client-ip x-gateway-request x-host x-scheme x-nginx-proxy
    x-request-start x-auth-request-email tailscale-user-login x-source-ip x-user-ip x-originating-ip x-haproxy-id
    x-ingress-path x-hass-source x-remote-user-display-name x-tunnel-authorization tunnel-id ngrok-auth-user-email
    front-end-https x-https x-amzn-mtls-clientcert-leaf x-sent-by-some-proxy-of-tomorrow
""".split()
DIRECT = """
    accept accept-encoding accept-language cache-control connection content-length content-type cookie dnt
    hx-current-url hx-request hx-target hx-trigger hx-trigger-name if-none-match last-event-id mcp-protocol-version
    mcp-session-id mcp-method mcp-name origin pragma priority range referer sec-ch-ua sec-fetch-site sec-websocket-key
    sec-websocket-version te traceparent transfer-encoding upgrade upgrade-insecure-requests user-agent x-csrftoken
    x-requested-with x-request-id x-stainless-lang
""".split()


def test_it_takes_what_clients_send_by_themselves_for_local_and_no_forwarded_request() -> None:
    for header in DIRECT:
        assert who(info(**{header: "http://localhost:8420"})).operator == "local", header
    for header in PROXIED:
        with pytest.raises(AccessDenied, match=header) as refusal:
            who(info(**{header: "127.0.0.1"}))
        assert refusal.value.status == 401


def test_it_takes_no_request_for_local_that_speaks_as_nginx_does_by_default() -> None:
    """It adds no header, and names itself as the Host: its HTTP/1.0 is all that shows."""
    assert status(replace(info(connection="close"), http_version="1.0")) == 401


def test_it_asks_everybody_beyond_loopback_for_a_key_and_all_while_it_is_bound_there(settings: Any) -> None:
    for peer in ("192.168.1.7", "8.8.8.8", "::2", "", None, "localhost", "::ffff:10.0.0.1"):
        assert status(info(peer)) == status(info(peer, x_forwarded_for="127.0.0.1")) == 401, peer
    settings.NEXUS_TRUSTS_LOCAL, settings.ALLOWED_HOSTS = False, allowed_hosts("0.0.0.0")
    assert status(info()) == 401
    assert status(info(host="evil.example")) == 401


def test_it_binds_a_key_to_its_agent_wherever_it_stands(keyed: None) -> None:
    for where in (
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer {KEY}"},
        {"x_api_key": KEY},
        {"query": f"api_key={KEY}"},
        {"query": f"a=1&api_key={KEY}", "x_api_key": KEY},
    ):
        caller = who(info("192.168.1.7", **where), key_required=True)
        assert (caller.agent_id, caller.operator) == ("ana", None)
        assert who(info(**where)) == caller  # and never the operator, local as it is


def test_it_tells_the_holders_of_different_keys_apart_and_shows_no_key(keyed: None) -> None:
    first = who(info(x_api_key=KEY)).connection
    AgentKey.objects.update(key_hash=hash_secret(OTHER_KEY))
    second = who(info(x_api_key=OTHER_KEY)).connection
    assert first and second and first != second
    assert first.startswith("key:") and KEY[4:20] not in first
    assert who(info(x_api_key=OTHER_KEY), connection="sse:1").connection == "sse:1", "a stream is its own"


def test_it_refuses_a_wrong_key_and_falls_back_to_nobody(keyed: None) -> None:
    unknown = "nxs_" + "0" * 48
    for wrong in (
        *({"x_api_key": key} for key in (unknown, "", KEY.upper(), KEY + "0")),
        *({"authorization": text} for text in ("Basic YTpi", "Bearer")),
        *({"query": "api_key="}, {"query": f"api_key={KEY}", "x_api_key": unknown}),
        {"x_api_key": "nxs_\x00", "staff": "olga"},
    ):
        assert status(info(**wrong)) == 401, wrong
    AgentKey.objects.update(is_active=False)
    assert status(info(x_api_key=KEY)) == 401


def test_it_takes_a_logged_in_operator_by_name_from_anywhere_but_not_where_a_key_is_needed() -> None:
    assert who(info("192.168.1.7", staff="olga")) == Caller("rest", operator="olga", connection="operator:olga")
    assert status(info(staff="olga"), key_required=True) == 401
    assert status(info(staff="olga", origin="http://evil.example")) == 403


@pytest.mark.parametrize("end", ["logout", "another password", "a closed account"])
def test_it_ends_a_login_for_connections_that_began_with_it(db: None, client: Client, end: str) -> None:
    olga = User.objects.create_superuser("olga", password="correct horse")
    client.login(username="olga", password="correct horse")
    connected = replace(info("192.168.1.7", staff="olga"), session=client.session.session_key)
    long_lived: dict[str, Any] = {"transport": "websocket", "connection": "websocket:1"}
    assert identify(connected, **long_lived).operator == "olga"
    if end == "logout":
        client.logout()
    elif end == "another password":
        olga.set_password("another")
        olga.save()
    else:
        User.objects.update(is_staff=False)
    with pytest.raises(AccessDenied):
        identify(connected, **long_lived)


def test_it_counts_only_active_members_of_the_staff() -> None:
    scope = {"headers": [(b"Host", b"localhost")], "query_string": b"", "client": ["10.0.0.1", 5]}
    traits = {"is_authenticated": True, "is_active": True, "is_staff": True}

    def staff(**lacking: bool) -> str | None:
        user = SimpleNamespace(get_username=lambda: "olga", is_superuser=True, **{**traits, **lacking})
        return ConnectionInfo.of_scope(scope, user).staff

    assert staff() == "olga"
    assert [staff(**{trait: False}) for trait in traits] == [None] * 3


def test_it_serves_the_names_of_its_bind() -> None:
    assert "*" not in allowed_hosts("127.0.0.1") + allowed_hosts("::1") + allowed_hosts("localhost")
    assert "10.1.2.3" in allowed_hosts("10.1.2.3")
    assert "[fd00::1]" in allowed_hosts("fd00::1")
    assert "127.0.0.2" in allowed_hosts("127.0.0.2")


def test_it_strikes_keys_from_any_text_and_no_other_long_ids() -> None:
    query = f"GET /mcp?api_key={KEY}&a=1"
    for text in (query, f"/x?API%5Fkey={KEY}", f"key {KEY}", "?api_key=secret", f"/%6exs_{KEY[4:]}"):
        struck = redact(text)
        assert KEY not in struck and KEY[4:] not in struck and "secret" not in struck
        assert struck.endswith("&a=1") == text.endswith("&a=1")
    for text in ("a" * 64, "msg_" + "0" * 32):
        assert redact(text) == text


def test_it_strikes_keys_from_every_log_record(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("uvicorn.access")
    try:
        raise ValueError(f"cannot read {KEY}")
    except ValueError:
        log.exception("%s - %d %s", f"/mcp?api_key={KEY}", 7, ValueError(KEY))
    log.warning("%(path)s", {"path": KEY})
    log.warning(KEY)
    assert "7" in caplog.text
    assert KEY not in caplog.text and KEY[4:] not in caplog.text


async def test_it_tells_who_somebody_is_while_others_read_whatever_it_takes(committed: None) -> None:
    done = threading.Event()
    loop = asyncio.get_running_loop()
    reads = [loop.run_in_executor(waiting.READERS, done.wait, START_SECONDS) for _ in range(8)]
    try:
        async with asyncio.timeout(START_SECONDS / 2):
            with pytest.raises(AccessDenied):
                await aidentify(info("192.168.1.7", x_api_key=KEY), transport="http")
    finally:
        done.set()
        await asyncio.gather(*reads)


async def bound() -> str | None:
    """Whose key it is that a request shows, as an event loop asks."""
    return (await aidentify(info("192.168.1.7", x_api_key=KEY), transport="http")).agent_id


@pytest.mark.sqlite
async def test_it_knows_a_key_while_no_thread_is_free(committed: None) -> None:
    await waiting.in_thread(waiting.WRITERS, issue)
    done = threading.Event()
    loop = asyncio.get_running_loop()
    pools = (waiting.AUTHENTICATION, waiting.READERS)
    work = [loop.run_in_executor(pool, done.wait, START_SECONDS) for pool in pools for _ in range(8)]
    try:
        async with asyncio.timeout(START_SECONDS / 2):
            assert await bound() == "ana"
    finally:
        done.set()
        await asyncio.gather(*work)


async def test_it_refuses_a_key_at_once_that_another_connection_to_the_store_deactivated(committed: None) -> None:
    await waiting.in_thread(waiting.WRITERS, issue)
    for active in (True, False, True, False):
        change = partial(AgentKey.objects.filter(agent_id="ana").update, is_active=active)
        await waiting.in_thread(waiting.WRITERS, change)
        if active:
            assert await bound() == "ana"
        else:
            with pytest.raises(AccessDenied):
                await bound()


@pytest.mark.sqlite
async def test_it_asks_on_a_thread_where_the_file_cannot_be_read_at_once(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waiting.in_thread(waiting.WRITERS, issue)

    def busy(*_: Any, **__: Any) -> Any:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(quick_reads, "_kept", quick_reads._Kept())
    monkeypatch.setattr(quick_reads, "connect", busy)
    assert await bound() == "ana"


OAUTH = ["/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/register", "/token"]


@pytest.mark.parametrize("method", ["get", "post", "head", "options"])
@pytest.mark.parametrize(
    "path", [*OAUTH, "/.well-known/oauth-protected-resource/mcp", "/.well-known/openid-configuration", "/authorize"]
)
def test_a_client_that_looks_for_oauth_gets_json_that_says_what_to_do(path: str, method: str) -> None:
    answer = getattr(Client(), method)(path, headers={"accept": "application/json, */*"})
    assert (answer.status_code, answer["content-type"]) == (404, "application/json")
    if method != "head":
        assert "There is no OAuth here" in answer.json()["error"]["message"]


def test_a_person_gets_a_page_of_what_is_not_there() -> None:
    answer = Client().get("/nowhere", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert answer.status_code == 404 and b"To the dashboard" in answer.content

"""JSON-RPC over HTTP: the order of checks, and every status, code and limit of docs/reference/json-rpc.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django import conf
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.models import AgentKey
from coordination.services import keys
from nexus.client.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SERVER_ERROR,
)
from nexus.control.models import PoolAgent
from nexus.control.rpc import endpoint as methods
from nexus.control.toolset import CONTROL, PREFIX
from nexus.core.apps import nexus_apps
from tests.conftest import examples
from tests.control.wire import GLOBAL, TOKEN, Wire, request

MAX_BODY = 1_048_576
LIST = json.dumps(request("list_agents")).encode()
HEADER_BYTES = 32 * 1024


def padded(size: int) -> bytes:
    """A valid request of so many bytes."""
    return LIST + b" " * (size - len(LIST))


def headers_of(size: int, already: int) -> list[tuple[str, str]]:
    """Headers that bring a request's to so many bytes."""
    return [("x-filler", "x" * (size - already - len("x-filler")))]


def key_of(agent_id: str) -> str:
    """A key of an agent."""
    return keys.issue(agent_id=agent_id, operator="olga")


STANDARD = sum(map(len, ("authorization", "Bearer nxk_" + "t" * 43, "host", "127.0.0.1")))

# What is wrong, in the order in which it is found: every request has that and all that is found later.
ORDER: list[tuple[str, dict[str, Any], int, int]] = [
    ("limits", {"headers": [(f"x-{n}", "") for n in range(130)]}, 400, PARSE_ERROR),
    ("method", {"method": "GET"}, 405, INVALID_REQUEST),
    ("no token", {"token": None}, 401, INVALID_REQUEST),
    ("route", {"path": "/agent/nobody"}, 404, INVALID_PARAMS),
    ("JSON", {"body": b"{"}, 400, PARSE_ERROR),
]


@pytest.mark.parametrize("first", range(len(ORDER)), ids=[each[0] for each in ORDER])
def test_it_checks_in_the_order_of_the_contract(rpc: Wire, first: int) -> None:
    wrong = {key: value for _, given, *_ in reversed(ORDER[first:]) for key, value in given.items()}
    answer = rpc.raw(**wrong)
    assert (answer.status, answer.code, answer.json["id"]) == (*ORDER[first][2:], None)
    assert answer.headers["content-type"] == "application/json"


def test_it_asks_for_the_token(rpc: Wire) -> None:
    for headers, status in [
        ([("authorization", "Bearer")], 401),
        ([("authorization", "Bearer  ")], 401),
        ([("authorization", "Basic dTpw")], 401),
        ([("x-api-key", "nxs_" + "0" * 48)], 401),
        ([("authorization", "Bearer nxk_wrong")], 403),
        ([("authorization", "Bearer nxk_" + "t" * 42 + "é")], 403),
        ([("authorization", "Bearer nxs_" + "0" * 48)], 403),
        ([("authorization", "Bearer " + "t" * 43)], 403),
        ([("authorization", "Bearer nxk_" + "t" * 43), ("authorization", "Bearer nxk_wrong")], 403),
        ([("authorization", "bearer nxk_" + "t" * 43)], 200),
        ([("authorization", "BEARER   nxk_" + "t" * 43 + " ")], 200),
    ]:
        answer = rpc.raw(body=LIST, token=None, headers=headers)
        assert answer.status == status
        if status != 200:
            assert (answer.code, answer.json["id"]) == (INVALID_REQUEST, None)
            assert ("www-authenticate" in answer.headers) == (status == 401)


def test_it_answers_no_page_of_another_site(rpc: Wire) -> None:
    for host, headers in [
        ("evil.example", []),
        ("127.0.0.1", [("origin", "http://evil.example")]),
        ("127.0.0.1", [("origin", "null")]),
        (None, []),
        ("127.0.0.1", [("host", "localhost")]),
    ]:
        answer = rpc.raw(body=LIST, host=host, headers=headers)
        assert (answer.status, answer.code) == (403, INVALID_REQUEST)


def test_it_answers_this_machine_alone(rpc: Wire) -> None:
    rpc.call("create_agent", agent_id="a")
    for peer in ["192.0.2.1", "::ffff:192.0.2.1", None]:
        for path, method in [("/rpc", "POST"), ("/agent/a", "POST"), ("/agent/a/stream", "GET")]:
            for shown in ([("x-api-key", key_of("a"))], [("authorization", f"Bearer {TOKEN}")], []):
                if shown or path != "/agent/a/stream":  # a login admits to that, as it does to the pages
                    answer = rpc.raw(path, LIST, method=method, token=None, headers=shown, peer=peer)
                    assert (answer.status, answer.json["id"]) == (403, None)
            assert rpc.raw(body=LIST, peer="192.0.2.10").status == 200, "it is the server's own address"


def test_a_setting_admits_keys_from_elsewhere_and_never_the_token(rpc: Wire, configure: Callable[..., None]) -> None:
    configure(control=True, rpc_beyond_loopback=True)
    rpc.call("create_agent", agent_id="a")
    key = [("authorization", f"Bearer {key_of('a')}")]
    look = json.dumps(request("get_context")).encode()
    assert "result" in rpc.raw("/agent/a", look, token=None, headers=key, peer="192.0.2.1").json
    assert rpc.raw("/agent/a", look, peer="192.0.2.1").status == 403
    assert rpc.raw("/agent/a", look, token=None, peer="192.0.2.1").status == 401
    [told] = [app.remarks()["Warning"] for app in nexus_apps() if app.name == "nexus.control"]
    assert "any machine" in told


def test_it_takes_posts_alone(rpc: Wire) -> None:
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "post"]:
        answer = rpc.raw(body=LIST, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert answer.body == b"" if method == "HEAD" else answer.code == INVALID_REQUEST


def test_it_answers_at_both_paths_of_the_pool(rpc: Wire) -> None:
    for path in ["/", "/rpc"]:
        assert rpc.raw(path, LIST).json == {"jsonrpc": "2.0", "id": 1, "result": {"agents": []}}


def test_it_has_no_other_path(rpc: Wire) -> None:
    rpc.call("create_agent", agent_id="a")
    for path in [
        "/rpc/",
        "/agent",
        "/agent/",
        "/agent/..",
        "/agent/a/b",
        "/agent/\x00",
        "/agent/a\n",
        "/agent/ä",
        "//rpc",
        "",
        "/mcp",
    ]:
        answer = rpc.raw(path, LIST)
        assert (answer.status, answer.code, answer.json["id"]) == (404, INVALID_PARAMS, None)


def test_it_takes_a_body_of_1048576_bytes(rpc: Wire) -> None:
    for size, status in [(MAX_BODY - 1, 200), (MAX_BODY, 200), (MAX_BODY + 1, 400), (5 * MAX_BODY, 400)]:
        for how in ["declared", "whole", "in pieces"]:
            body = padded(size)
            pieces = [body[start : start + 65_536] for start in range(0, size, 65_536)] if how == "in pieces" else body
            declared = [("content-length", str(size))] if how == "declared" else []
            answer = rpc.raw(body=pieces, headers=declared)
            assert answer.status == status
            assert status == 200 or (answer.code, answer.json["id"]) == (PARSE_ERROR, None)


def test_it_refuses_more_values_than_any_call_takes(rpc: Wire) -> None:
    for values in [b"[]," * 300_000 + b"1", b'"",' * 260_000 + b"1"]:
        body = b'{"jsonrpc":"2.0","method":"list_agents","id":1,"params":{"a":[' + values + b"]}}"
        answer = rpc.raw(body=body)
        assert (answer.status, answer.code, "more values" in answer.body.decode()) == (400, PARSE_ERROR, True)


def test_it_takes_128_headers(rpc: Wire) -> None:
    for count, status in [(128, 200), (129, 400)]:
        answer = rpc.raw(body=LIST, headers=[(f"x-{n}", "") for n in range(count - 2)])
        assert answer.status == status and (status == 200 or answer.code == PARSE_ERROR)


def test_it_takes_32768_bytes_of_headers(rpc: Wire) -> None:
    for size, status in [(HEADER_BYTES, 200), (HEADER_BYTES + 1, 400)]:
        answer = rpc.raw(body=LIST, headers=headers_of(size, STANDARD))
        assert answer.status == status and (status == 200 or answer.code == PARSE_ERROR)


def test_it_refuses_what_is_no_json(rpc: Wire) -> None:
    for body in [
        b"",
        b"{",
        b"no",
        b"{'a':1}",
        b'{"jsonrpc":"2.0","method":"list_agents","id":NaN}',
        b'{"jsonrpc":"2.0","method":"list_agents","id":1,"params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","method":"list_agents","id":01}',
        b'{"jsonrpc":"2.0"}{"jsonrpc":"2.0"}',
        b"\xff\xfe{}",
        b"\xef\xbb\xbf" + LIST,
        LIST.decode().encode("utf-16"),
        b'{"jsonrpc":"2.0","method":"\xed\xa0\x80","id":1}',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ]:
        answer = rpc.raw(body=body)
        assert (answer.status, answer.code, answer.json["id"]) == (400, PARSE_ERROR, None)


VALID: dict[str, Any] = {"jsonrpc": "2.0", "method": "list_agents", "id": 7}
NO_METHODS: list[Any] = [1, None, "", [], {}]
NO_IDS: list[Any] = [1.5, 1.0, True, False, [], {}, 1e400]


def test_it_refuses_what_is_no_request(rpc: Wire) -> None:
    for message in [
        *([], [VALID], [1], 1, "text", None, True, {}),
        {**VALID, "jsonrpc": "1.0"},
        {**VALID, "jsonrpc": 2.0},
        {**VALID, "jsonrpc": None},
        {"method": "list_agents", "id": 7},
        {"jsonrpc": "2.0", "id": 7},
        *({**VALID, "method": method} for method in NO_METHODS),
        *({**VALID, "id": identifier} for identifier in NO_IDS),
    ]:
        answer = rpc.raw(body=json.dumps(message).replace("Infinity", "1e400").encode())
        assert (answer.status, answer.code, answer.json["id"]) == (200, INVALID_REQUEST, None)


def test_it_takes_a_number_too_large_for_a_number_as_no_id(rpc: Wire) -> None:
    """It is JSON, and Python would refuse to read or write it."""
    answer = rpc.raw(body=b'{"jsonrpc":"2.0","method":"list_agents","id":' + b"9" * 10_000 + b"}")
    assert (answer.status, answer.code, answer.json["id"]) == (200, INVALID_REQUEST, None)
    answer = rpc.raw(
        body=b'{"jsonrpc":"2.0","method":"create_agent","id":1,"params":{"agent_id":' + b"9" * 10_000 + b"}}"
    )
    assert (answer.status, answer.code, answer.json["id"]) == (200, INVALID_PARAMS, 1)


def test_it_gives_an_id_back_as_it_came(rpc: Wire) -> None:
    for identifier in [0, -1, 2**63, 10**300, "", "x", "7", "\ud800", "\x00", "ä", "x" * 10_000]:
        assert rpc.post("/rpc", {**VALID, "id": identifier}).json["id"] == identifier
        unknown = rpc.post("/rpc", {**VALID, "id": identifier, "method": "x"}).json
        assert (unknown["id"], unknown["error"]["code"]) == (identifier, METHOD_NOT_FOUND)


def test_it_takes_named_parameters_alone(rpc: Wire) -> None:
    for params in [[], [1], "x", 1, True, 1.5]:
        answer = rpc.post("/rpc", {**VALID, "params": params})
        assert (answer.status, answer.code, answer.json["id"]) == (200, INVALID_PARAMS, VALID["id"])


def test_it_takes_no_parameters_for_none(rpc: Wire) -> None:
    for message in (VALID, {**VALID, "params": None}, {**VALID, "params": {}}, {**VALID, "extra": 1}):
        assert rpc.post("/rpc", message).json["result"] == {"agents": []}


@pytest.mark.parametrize("notice", [{}, {"id": None}], ids=["absent", "null"])
def test_it_performs_a_notification_and_answers_nothing(rpc: Wire, notice: dict[str, Any]) -> None:
    create = {"jsonrpc": "2.0", "method": "create_agent", "params": {"agent_id": "a"}, **notice}
    answer = rpc.post("/rpc", create)
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
    assert PoolAgent.objects.living().filter(agent_id="a").exists()


def test_it_swallows_the_errors_of_a_notification(rpc: Wire) -> None:
    wrongs: list[dict[str, Any]] = [
        {"method": "create_agent", "params": {"agent_id": ".."}},
        {"method": "create_agent", "params": {"unknown": 1}},
        {"method": "nothing"},
        {"method": "list_agents", "params": [1]},
        {"method": "destroy_agent", "params": {}},
    ]
    for wrong in wrongs:
        answer = rpc.post("/rpc", {"jsonrpc": "2.0", **wrong})
        assert (answer.status, answer.body) == (200, b"")


def test_it_answers_the_errors_that_come_before_a_notification_is_one(rpc: Wire) -> None:
    assert rpc.post("/rpc", {"method": "list_agents"}).code == INVALID_REQUEST
    assert rpc.post("/agent/nobody", {"jsonrpc": "2.0", "method": "send"}).status == 404


def test_it_knows_no_other_method(rpc: Wire) -> None:
    for method in ["nothing", "pool_list_agents", "rpc.discover", "LIST_AGENTS", "list_agents ", "\ud800"]:
        assert rpc.refused(method)["code"] == METHOD_NOT_FOUND


def test_it_has_methods_of_its_own(rpc: Wire) -> None:
    assert rpc.call("list_runs") == {"runs": []}
    assert rpc.call("list_reviews") == {"count": 0, "reviews": []}
    assert rpc.refused("get_run", run_id="turn_none")["code"] == INVALID_PARAMS
    rpc.call("create_agent", agent_id="a")
    for name in CONTROL.operations:
        method = name.removeprefix(PREFIX)
        if method not in methods.OF_AGENT:
            assert rpc.refused(method, "/agent/a")["code"] == METHOD_NOT_FOUND


def test_it_keeps_the_methods_of_agents_and_of_the_pool_apart(rpc: Wire) -> None:
    rpc.call("create_agent", agent_id="a")
    for method in sorted(GLOBAL):
        assert rpc.refused(method, "/agent/a")["code"] == METHOD_NOT_FOUND
    for method in sorted(methods.OF_AGENT):
        assert rpc.refused(method)["code"] == METHOD_NOT_FOUND
    assert rpc.refused("get_context", "/agent/a", agent_id="b")["code"] == INVALID_PARAMS


BAD_PARAMS: list[tuple[str, dict[str, Any]]] = [
    *(("create_agent", {"agent_id": bad}) for bad in (1, "", ".", "..", "a..b", "a/b", "a\\b", "a\n", "a b", "ä")),
    *(("create_agent", {"agent_id": bad}) for bad in ("..a", "x" * 63, "." + "x" * 63, "\x00", "\ud800", "x\x7f")),
    *(("create_agent", {"preset": bad}) for bad in ("yolo", "bogus", 1, "")),
    *(("create_agent", {"cwd": bad}) for bad in ("relative", "/no/such/place", "", 1, "/dev/null", "/\x00")),
    *(("create_agent", {"allowed_write_paths": bad}) for bad in ("x", [1], [""], ["/etc"], ["\ud800"])),
    *(("create_agent", {"model": bad}) for bad in ("no-such-runner", 1, "")),
    *(("create_agent", {"disable_tools": bad}) for bad in (["no-such-tool"], "run", [1])),
    *(("create_agent", {"parent_agent_id": bad}) for bad in ("nobody", 1, "")),
    ("create_agent", {"wait_for_initial_response": 1}),
    *(("create_agent", {"initial_message": bad}) for bad in (["x"], "", "\x00")),
    ("create_agent", {"unknown": 1}),
    ("destroy_agent", {}),
    ("destroy_agent", {"agent_id": None}),
    ("list_agents", {"agent_id": "a"}),
    ("send", {}),
    *(("send", {"content": bad}) for bad in ("", 1, None, ["x"], "\x00", "\ud800")),
    *(("send", {"content": "x", "request_id": bad}) for bad in ("", 1.5, "x" * 256)),
    ("send", {"content": "x", "timeout_seconds": -1}),
    ("send", {"content": "x", "on_disconnect": "stay"}),
    *(("cancel", {"request_id": bad}) for bad in (None, 1.5, "")),
    *(("get_messages", {"offset": bad}) for bad in (-1, "0", 1.5, True, 10**30)),
    *(("get_messages", {"limit": bad}) for bad in (0, 2001, "1", None)),
    ("compact", {"force": "yes"}),
    ("compact", {"force": [[[[]]] * 30]}),
]


def test_it_tells_a_callers_mistake_as_one_and_makes_nothing(rpc: Wire) -> None:
    rpc.call("create_agent", agent_id="a")
    for method, params in BAD_PARAMS:
        error = rpc.refused(method, "/agent/a" if method in methods.OF_AGENT else "/rpc", **params)
        assert error["code"] == INVALID_PARAMS and error["message"] and error["data"]["code"]
        assert [agent["agent_id"] for agent in rpc.call("list_agents")["agents"]] == ["a"]


def test_it_refuses_deep_nesting_as_a_parameter(rpc: Wire) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    assert rpc.refused("create_agent", agent_id=deep)["code"] == INVALID_PARAMS


def test_it_tells_codes_of_its_own_between_minus_32000_and_minus_32099() -> None:
    own = set(methods.CODES.values()) - {INVALID_PARAMS, INTERNAL_ERROR}
    assert own and all(SERVER_ERROR - 99 <= code <= SERVER_ERROR for code in own)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
anything = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "method": st.sampled_from(sorted(GLOBAL - {"shutdown_server"})) | json_values,
        "params": st.dictionaries(
            st.sampled_from(["agent_id", "preset", "cwd", "allowed_write_paths", "model", "parent_agent_id"]),
            json_values,
            max_size=3,
        )
        | json_values,
        "id": json_values,
    },
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | (json_values | anything).map(lambda value: json.dumps(value).encode()))
def test_it_answers_anything_with_a_documented_status_and_code(rpc: Wire, body: bytes) -> None:
    answer = rpc.raw(body=body)
    assert answer.status in (200, 400)
    if not answer.body:
        return
    told = answer.json
    assert told["jsonrpc"] == "2.0" and ("error" in told) != ("result" in told)
    if "error" in told:
        assert told["error"]["code"] in (PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS)
        assert (answer.status == 400) == (told["error"]["code"] == PARSE_ERROR)


@pytest.mark.parametrize(
    "method, path, shown, table",
    [
        ("POST", "/rpc", ("Authorization", f"Bearer nxs_{'0' * 48}"), AgentKey),
        ("POST", "/agent/lead", ("Authorization", f"Bearer {TOKEN}"), PoolAgent),
        ("GET", "/agent/lead/stream", ("Authorization", f"Bearer {TOKEN}"), PoolAgent),
        ("GET", "/agent/lead/stream", ("Cookie", "{cookie}=" + "s" * 32), Session),
    ],
    ids=["a key", "an agent", "a stream", "a login"],
)
def test_it_answers_the_documented_error_where_the_store_fails_before_the_call(
    rpc: Wire, method: str, path: str, shown: tuple[str, str], table: type[Model]
) -> None:
    name, shows = table._meta.db_table, shown[1].format(cookie=conf.settings.SESSION_COOKIE_NAME)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} RENAME TO away")
        try:
            answer = rpc.raw(path, method=method, token=None, headers=[(shown[0], shows)])
        finally:
            cursor.execute(f"ALTER TABLE away RENAME TO {name}")
    assert (answer.status, answer.json["id"], answer.code) == (503, None, -32004)
    assert answer.json["error"]["data"]["code"] == "DB_ERROR"

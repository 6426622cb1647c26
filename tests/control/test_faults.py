"""What an error of a provider is called, and how long it asks to wait."""

from __future__ import annotations

import pytest

from nexus.control import faults
from nexus.control.faults import Fault, FaultKind

# As published agents say it over JSON-RPC: the message, and the data behind it.
GEMINI_KEY = (
    '{"error":{"code":401,"message":"API key not valid. Please pass a valid API key.","status":"UNAUTHENTICATED"}}'
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (GEMINI_KEY, Fault(FaultKind.KEY)),
        (
            "Internal error: API Error: Request rejected (429) · This request would exceed your rate limit "
            '({"errorKind": "rate_limit"})',
            Fault(FaultKind.OVERLOADED),
        ),
        (
            'Internal error ({"message": "Quota exceeded. Check your plan and billing details.", '
            '"codexErrorInfo": "usageLimitExceeded"})',
            Fault(FaultKind.QUOTA),
        ),
        ("exception TypeError: fetch failed sending request", Fault(FaultKind.UNREACHABLE)),
        ("terminated", Fault(FaultKind.UNREACHABLE)),
        ("Internal error: API Error: 429 rate_limit_error, retry-after: 7", Fault(FaultKind.OVERLOADED, 7)),
        ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', Fault(FaultKind.OVERLOADED)),
        ("API Error: Unable to connect to API (ECONNREFUSED)", Fault(FaultKind.UNREACHABLE)),
        ("unexpected status 503 Service Unavailable: x", Fault(FaultKind.OVERLOADED)),
        ("unexpected status 500 Internal Server Error", Fault(FaultKind.FAILING)),
        ("Rate limit reached for gpt-5. Please try again in 7.5s.", Fault(FaultKind.OVERLOADED, 7.5)),
        ("Rate limit reached. Please try again in 250ms.", Fault(FaultKind.OVERLOADED, 0.25)),
        ('{"code": 429, "details": [{"retryDelay": "34s"}]}', Fault(FaultKind.OVERLOADED, 34)),
        ("429 Too Many Requests: try again in 2 minutes", Fault(FaultKind.OVERLOADED, 120)),
        ("429: insufficient_quota: You exceeded your current quota", Fault(FaultKind.QUOTA)),
        ("Your credit balance is too low to access the API", Fault(FaultKind.QUOTA)),
        ("Invalid API key · Please run /login", Fault(FaultKind.KEY)),
        ("stream disconnected before completion", Fault(FaultKind.UNREACHABLE)),
        ("TypeError: fetch failed", Fault(FaultKind.UNREACHABLE)),
        ("Internal error", None),
        ("the file has 429 lines", None),
        ("port 5000 is taken", None),
        ("no such tool: rate", None),
        ("", None),
    ],
)
def test_it_reads_what_agents_say_of_their_provider(text: str, fault: Fault | None) -> None:
    assert faults.of_text(text) == fault


@pytest.mark.parametrize(
    ("code", "kind"), [(401, FaultKind.KEY), (429, FaultKind.OVERLOADED), (500, None), (-32_603, None)]
)
def test_it_knows_agents_whose_errors_have_the_code_of_http(code: int, kind: FaultKind | None) -> None:
    assert faults.of_text("it failed", code) == (kind and Fault(kind))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests\n\n", Fault(FaultKind.OVERLOADED)),
        (
            "We\u2019re currently experiencing high demand, which may cause temporary errors.\n\n",
            Fault(FaultKind.OVERLOADED),
        ),
        ("HTTP 429 Too Many Requests means that you ask too often.", None),
        (f"stream disconnected before completion {'x' * 1_000}", None),
    ],
)
def test_it_knows_faults_that_are_given_as_answers(text: str, fault: Fault | None) -> None:
    assert faults.of_answer(text) == fault


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (401, "", FaultKind.KEY),
        (403, "", FaultKind.KEY),
        (402, "", FaultKind.QUOTA),
        (429, "slow down", FaultKind.OVERLOADED),
        (429, "insufficient_quota", FaultKind.QUOTA),
        (400, "Your credit balance is too low", FaultKind.QUOTA),
        (529, "", FaultKind.OVERLOADED),
        (502, "", FaultKind.FAILING),
        (408, "", FaultKind.FAILING),
        (400, "no such model", None),
        (404, "", None),
        (422, "", None),
    ],
)
def test_it_names_the_fault_of_a_status(status: int, text: str, kind: FaultKind | None) -> None:
    assert faults.of_status(status, text) == kind


def test_the_wait_doubles_up_to_a_quarter_of_an_hour_unless_the_provider_names_a_time() -> None:
    unnamed = Fault(FaultKind.UNREACHABLE)
    assert [faults.seconds_to_wait(unnamed, failures) for failures in (1, 2, 3, 7, 8, 10_000)] == [
        *(10, 20, 40, 640, 900, 900),
    ]
    assert faults.seconds_to_wait(Fault(FaultKind.OVERLOADED, 3_600), 5) == 3_600
    assert faults.seconds_to_wait(Fault(FaultKind.QUOTA), 1) == 900


@pytest.mark.parametrize("text", ["error " * 200_000, "retry after " * 100_000, "status" + " " * 10**6, "(" * 10**6])
def test_an_error_of_any_length_is_read(text: str) -> None:
    assert faults.of_text(text) is None

"""An agent that speaks the Agent Client Protocol without its SDK, which takes a second to import: it says Hello."""

from __future__ import annotations

import json
import sys
from typing import Any


def tell(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


HELLO = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello"}}
ANSWERS = {
    "initialize": {"protocolVersion": 1},
    "session/new": {"sessionId": "s"},
    "session/prompt": {"stopReason": "end_turn"},
}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "session/prompt":
        tell(method="session/update", params={"sessionId": "s", "update": HELLO})
    if "id" in asked:
        tell(id=asked["id"], result=ANSWERS[asked["method"]])

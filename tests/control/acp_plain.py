"""An agent that speaks the Agent Client Protocol without its SDK, which takes a second to import: it says Hello.

With --older it offers its models as agents do that do not know the protocol's options, and says which one it has. With
--quota or --usage it counts its tokens outside of the protocol, as Gemini or Qwen do; both call a model twice.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def tell(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def say(text: str, **meta: Any) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, "_meta": meta}
    tell(method="session/update", params={"sessionId": "s", "update": update})


MODELS = {
    "currentModelId": "auto",
    "availableModels": [{"modelId": each, "name": each.title(), "description": None} for each in ("auto", "pro")],
}
QUOTA = {"quota": {"token_count": {"input_tokens": 80, "output_tokens": 40}, "model_usage": []}}
USAGE = {"inputTokens": 40, "outputTokens": 20, "totalTokens": 60, "thoughtTokens": 0, "cachedReadTokens": 5}
ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": 1},
    "session/new": {"sessionId": "s", **({"models": MODELS} if "--older" in sys.argv else {})},
    "session/set_model": {},
    "session/prompt": {"stopReason": "end_turn", **({"_meta": QUOTA} if "--quota" in sys.argv else {})},
}
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "session/set_model":
            MODELS["currentModelId"] = asked["params"]["modelId"]
        case "session/prompt":
            if "--usage" in sys.argv:
                say("", usage=USAGE)
                say("", usage=USAGE)
            say(f"Hello from {MODELS['currentModelId']}" if "--older" in sys.argv else "Hello")
    if "id" in asked:
        tell(id=asked["id"], result=ANSWERS[asked["method"]])

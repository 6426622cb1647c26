"""The figures of topics on stdio, each as a ratio to something measured in the same run.

python -m benchmarks.topics              # an empty topic and one of 200,000 messages, side by side
python -m benchmarks.topics --quick --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp.client.client import Client

from benchmarks.stdio import ROOT, RUNMCP, WARM_UP, Samples, _timed, connect, table

MESSAGES = 200_000
FILL = """
import django; django.setup()
from nexus.core.clock import now
from nexus.core.database import store
from nexus.topics.models import Topic, TopicMessage
store().prepare()
if {count}:
    moment, words = now(), "step build test cache branch review merge deploy retry queue".split()
    topic = Topic.objects.create(topic_id="filled", name="bench", last_seq={count}, created_at=moment)
    TopicMessage.objects.bulk_create((
        TopicMessage(message_id=f"m{{n}}", topic=topic, seq=n, sender=f"peer-{{n % 9}}", message_type="message",
            content_markdown=f"{{words[n % 10]}} {{words[n // 10 % 10]}} message {{n}} is done", created_at=moment)
        for n in range(1, {count} + 1)), batch_size=5000)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls and a shorter topic, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        figures = measure(Path(scratch), 30 if options.quick else options.calls, 5_000 if options.quick else MESSAGES)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def measure(scratch: Path, calls: int, messages: int) -> dict[str, Any]:
    """Every figure: medians in milliseconds, and the ratios that are claimed."""
    homes = {"empty": scratch / "empty", "filled": scratch / "filled"}
    for name, home in homes.items():
        environ = {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
        filling = FILL.format(count=messages if name == "filled" else 0)
        subprocess.run([sys.executable, "-c", filling], cwd=ROOT, env=environ, check=True)
    samples = asyncio.run(_calls(homes, calls))
    median = {kind: statistics.median(values) * 1000 for kind, values in samples.items()}
    ratios = {"sync that sends one, to a no-op call": median["sync that sends one: empty"] / median["no-op"]}
    kinds = [kind.removesuffix(": empty") for kind in median if kind.endswith(": empty")]
    ratios |= {f"{kind}, filled to empty": median[f"{kind}: filled"] / median[f"{kind}: empty"] for kind in kinds}
    return {
        "calls": calls,
        "history": {"messages": messages},
        "median_ms": {kind: round(value, 3) for kind, value in median.items()},
        "ratios": {what: round(value, 2) for what, value in ratios.items()},
    }


async def _calls(homes: dict[str, Path], calls: int) -> Samples:
    samples: Samples = {}
    async with AsyncExitStack() as stack:

        async def agent(home: Path, name: str) -> tuple[Client, str]:
            client = await connect(stack, *RUNMCP, "--toolsets", "topics", home=home)
            topic = (await _call(client, "topic_create", name="bench"))["topic_id"]
            await _call(client, "topic_join", topic_id=topic, agent_name=name)
            return client, topic

        noop = await connect(stack, str(ROOT / "benchmarks/noop_server.py"), home=homes["empty"])
        senders = {name: await agent(home, "sender") for name, home in homes.items()}
        for _ in range(calls + WARM_UP):  # in turn, so that a slow moment of the machine hits all alike
            await _timed(samples, "no-op", noop.call_tool("noop", {}))
            for name, (client, topic) in senders.items():
                outbox = [{"content_markdown": "a message of some words"}]
                send = _call(client, "sync", topic_id=topic, outbox=outbox, wait_seconds=0, auto_advance=False)
                await _timed(samples, f"sync that sends one: {name}", send)
        for client, topic in senders.values():  # one message behind the cursor, in either
            newest = await _call(
                client, "sync", topic_id=topic, outbox=[{"content_markdown": "unique"}], wait_seconds=0
            )
            await _call(client, "cursor_reset", topic_id=topic, last_seq=newest["sent"][0]["message"]["seq"] - 1)
        for _ in range(calls + WARM_UP):
            for name, (client, topic) in senders.items():
                read = {"topic_id": topic, "wait_seconds": 0, "include_self": True, "auto_advance": False}
                await _timed(samples, f"sync that receives one: {name}", _call(client, "sync", **read))
                await _timed(samples, f"topic_list: {name}", _call(client, "topic_list"))
                seek = {"topic_id": topic, "mode": "fts"}
                await _timed(
                    samples, f"search for a rare word: {name}", _call(client, "messages_search", query="unique", **seek)
                )
                await _timed(
                    samples,
                    f"search for a common word: {name}",
                    _call(client, "messages_search", query="message", **seek),
                )
        follower, topic = await agent(homes["empty"], "follower")
        for _ in range(max(20, calls // 8) + WARM_UP):
            await _wake(samples, senders["empty"][0], follower, topic)
    return {kind: values[WARM_UP:] for kind, values in samples.items()}


async def _wake(samples: Samples, sender: Client, follower: Client, topic: str) -> None:
    """From the sender's call to the answer of a sync that waits in another process."""
    while (await _call(follower, "sync", topic_id=topic, wait_seconds=0))["has_more"]:
        pass
    waiting = asyncio.create_task(_call(follower, "sync", topic_id=topic, wait_seconds=20))
    await asyncio.sleep(0.1)  # it is parked by then
    started = time.perf_counter()
    outbox = [{"content_markdown": "wake up"}]
    await _call(sender, "sync", topic_id=topic, outbox=outbox, wait_seconds=0, auto_advance=False)
    assert (await waiting)["received"]
    samples.setdefault("wake in another process", []).append(time.perf_counter() - started)


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    data: dict[str, Any] = result.structured_content
    return data


if __name__ == "__main__":
    main()

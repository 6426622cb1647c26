"""What `benchmarks.pages` asks the pool's pages of: 100 agents of which one said 5,000 things, 1,000 that ended, their
turns and questions, and a worktree with a diff of 200 files and more than is read at once."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

AGENTS, ENDED, ENTRIES, TURNS, QUESTIONS, FILES = 100, 1_000, 5_000, 50, 400, 200
SAID = "The **reader** of part {0} is `warm`:\n\n- read twice\n- written once\n\n```python\nkey = 7\n```\n" * 3


def fill_pool(home: Path, end: datetime) -> dict[str, str]:
    """The ids of an agent that said much, of one with a worktree, and of a question that waits."""
    from coordination.models import Agent
    from nexus.control.models import Entry, PoolAgent, Question, Turn

    def agent(number: int) -> PoolAgent:
        begun = end - timedelta(seconds=ENDED + AGENTS - number)
        return PoolAgent(
            pool_agent_id=f"pool_{number:07d}", agent_id=f"worker-{number:04d}", depth=min(number, 1), cwd=str(home),
            parent_id="pool_0000000" if 0 < number < AGENTS else None, preset="sandboxed" if number else "trusted",
            runner="rehearsal", wake_on=["mail"], held_why="rate" if number % 10 == 3 else None, created_by="olga",
            held_at=end if number % 10 == 3 else None, is_temporary=False, created_at=begun, last_action_at=begun,
            entries_made=ENTRIES, entries_known=ENTRIES, ended_at=None if number < AGENTS else end,
        )  # fmt: skip

    def turn(number: int) -> Turn:
        over = number >= AGENTS
        return Turn(
            turn_id=f"turn_{number:07d}", agent_id=f"pool_{number % AGENTS:07d}", request_id=f"r{number}",
            content=f"Look into part {number}. " * 200, source="mail", depth=1, queued_at=end, started_at=end,
            status="done" if over else "running", ended_at=end if over else None, answer="Done.",
            input_tokens=10_000, output_tokens=900,
        )  # fmt: skip

    def entry(position: int) -> Entry:
        role = ("assistant", "tool", "user")[position % 3]
        call = {"tool_calls": [{"id": f"c{position}", "name": "read_file", "arguments": {"path": "src/reader.py"}}]}
        return Entry(
            agent_id="pool_0000000", turn_id="turn_0000000", position=position, role=role, tokens=120, created_at=end,
            content=SAID.format(position), meta=call if role == "assistant" else None,
            tool_call_id=f"c{position - 1}" if role == "tool" else None,
        )  # fmt: skip

    def question(number: int) -> Question:
        waits = number % 2 == 0
        key = f"{number % 20:07d}"
        return Question(
            question_id=f"qst_{number:07d}", agent_id=f"worker-{key[3:]}", pool_agent_id=f"pool_{key}",
            turn_id=f"turn_{key}", kind="permission", title=f"Run make part-{number}?", subject="run make",
            detail="It builds the parser. " * 10, status="asked" if waits else "allowed", always=number % 4 == 1,
            answered_by=None if waits else "olga", asked_at=end, ended_at=None if waits else end,
            expires_at=end + timedelta(days=30),
        )  # fmt: skip

    smith = _worktree(home)  # while there is room in the pool
    Agent.everyone.bulk_create(
        Agent(agent_id=f"worker-{number:04d}", created_at=end, updated_at=end, last_seen_at=end)
        for number in range(AGENTS)
    )
    PoolAgent.objects.bulk_create(map(agent, range(AGENTS + ENDED)), batch_size=500)
    Turn.objects.bulk_create(map(turn, range(AGENTS * TURNS)), batch_size=500)
    Entry.objects.bulk_create(map(entry, range(ENTRIES)), batch_size=500)
    Question.objects.bulk_create(map(question, range(QUESTIONS)), batch_size=500)
    return {"agent": "pool_0000000", "smith": smith, "question": "qst_0000000"}


def _worktree(home: Path) -> str:
    """An agent that changed much in a repository of its own; its id."""
    from nexus.control.models import PoolAgent
    from nexus.control.toolset import CONTROL
    from nexus.core.operations import runner
    from nexus.core.operations.caller import Caller

    origin = home / "repository"
    (origin / "src").mkdir(parents=True)
    for number in range(FILES):
        (origin / "src" / f"part_{number}.py").write_text("def read(body):\n    return body\n" * 50)
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=origin, check=True)
    given = {"agent_id": "smith", "cwd": str(origin), "worktree": True}
    runner.perform(CONTROL, Caller("benchmark", operator="olga"), "pool_create_agent", given).result()
    smith = PoolAgent.objects.get(agent_id="smith")
    for number in range(FILES):
        (Path(smith.cwd) / "src" / f"part_{number}.py").write_text("def read(body):\n    return body[:9]\n" * 50)
    return smith.pk


def pool_pages(pool: Mapping[str, str]) -> list[str]:
    """Every page of the pool and of its questions, with what costs most."""
    agent, smith = f"/admin/pool/{pool['agent']}/", f"/admin/pool/{pool['smith']}/"
    return [
        *(
            f"/admin/pool/{query}"
            for query in ("", "?state=ended", "?state=ended&page=9", "?q=worker-00", "?q=none-has")
        ),
        *(f"/admin/pool/+new/{query}" for query in ("", "?parent=worker-0000")),
        *(f"{agent}{query}" for query in ("", "?before=2500", "?before=2500&whole=2490", "tail/?after=4000")),
        *(smith, f"{smith}worktree/", "/admin/questions/", f"/admin/questions/{pool['question']}/"),
    ]

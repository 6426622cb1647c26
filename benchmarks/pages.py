"""The pages that `benchmarks.years` asks for, and the plan and the pool that some of them show."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

AGENTS, ENDED, ENTRIES, TURNS, QUESTIONS = 100, 1_000, 5_000, 50, 400
SAID = "The **reader** of part {0} is `warm`:\n\n- read twice\n- written once\n\n```python\nkey = 7\n```\n" * 3
ADDRESSES = """
/admin/ /admin/?q=agent-00 /admin/attention/ /admin/bell/
/admin/graph/ /admin/graph/?hours=168 /admin/graph/?hours=168&workspace={workspace} /admin/graph/?agent=agent-007
/admin/graph/?from=agent-001&to=agent-002
/admin/board/ /admin/board/?workspace={workspace} /admin/handoffs/handoff/{handoff}/change/
/admin/coordination/agentlimits/
/admin/timeline/? /admin/timeline/?window=1d /admin/timeline/?window=7d /admin/timeline/?window=30d
/admin/timeline/?window=30d&workspace={workspace} /admin/timeline/?window=30d&span={handoff}.{step}
/admin/inbox/message/ /admin/inbox/message/{message}/change/ /admin/inbox/message/?agent=agent-007
/admin/inbox/message/?status=unread /admin/inbox/message/?status=read
/admin/inbox/message/?status=parked /admin/inbox/message/?status=delivered /admin/inbox/message/?status=nobody
/admin/inbox/message/?q=parser+lease
/admin/inbox/message/?q=nothing-has-this /admin/inbox/message/?workspace={workspace}
/admin/inbox/message/?workspace={workspace}&status=parked
/admin/inbox/message/?agent=agent-007&status=nobody /admin/inbox/message/?message_id__lt={parked}
/admin/coordination/agent/ /admin/agents/agent-007/ /admin/coordination/agent/add/
/admin/inbox/message/?agent=agent-000 /admin/agents/agent-000/ /admin/agents/agent-000/mail/
/admin/coordination/event/ /admin/coordination/event/?workspace={workspace}
/admin/coordination/event/?type=artifact.created
/admin/coordination/event/?type=never.happened /admin/coordination/event/?agent=agent-007
/admin/coordination/event/?agent=nobody&workspace={workspace}
/admin/coordination/event/?stream=handoff /admin/coordination/event/?q=parser
/admin/coordination/event/?event_id__lt=1000 /admin/coordination/event/?type=handoff.*
/admin/coordination/event/?alive=on /admin/coordination/event/{event}/change/
/admin/topics/topic/ /admin/topics/topic/?status=open /admin/topics/topic/?q=cache
/admin/topics/topic/?q=nothing-has-this /admin/topics/topic/add/
/admin/topics/tpc_empty/ /admin/topics/tpc_short/ /admin/topics/tpc_long/ /admin/topics/tpc_long/?at=100
/admin/topics/tpc_long/?event_id__lt=100000 /admin/topics/tpc_long/?q=cache+part
/admin/topics/tpc_long/tail/?after=1000
/admin/topics/tpc_long/delete/ /admin/topics/+message/{topic_message}/delete/
/admin/plan/ /admin/plan/?workspace={plan[place]} /admin/planning/task/{plan[task]}/change/
/admin/planning/cycle/{plan[cycle]}/change/
/admin/plan/issues/{plan[issue]}/ /admin/plan/{plan[place]}/close/
/admin/planning/task/ /admin/planning/cycle/ /admin/planning/cycle/?q=cache /admin/planning/cycle/?q=nothing-has-this
/admin/control/poolagent/ /admin/control/poolagent/?state=ended /admin/control/poolagent/?state=ended&p=9
/admin/control/poolagent/?q=worker-00 /admin/control/poolagent/?q=none-has
/admin/control/poolagent/add/ /admin/control/poolagent/add/?parent=worker-0000
/admin/control/turn/ /admin/control/turn/turn_0000000/change/
/admin/pool/{pool[agent]}/ /admin/pool/{pool[agent]}/?before=2500 /admin/pool/{pool[agent]}/?before=2500&whole=2490
/admin/pool/{pool[agent]}/tail/?after=4000
/admin/control/question/ /admin/questions/{pool[question]}/
/admin/files/reservation/ /admin/files/reservation/?p=9 /admin/files/reservation/?state=ended
/admin/files/reservation/?q=module_42 /admin/files/reservation/?q=nothing-has-this
/admin/files/reservation/rsv_0000001/change/
/admin/find/?q=parser /admin/find/?q=agent-007+lease /admin/find/?q=nothing-has-this
/admin/search/?extended=1&s=agent-007 /admin/search/?extended=1&s=parser /admin/search/?extended=1&s=nothing-has-this
/admin/speak/ /admin/settings/ /admin/retention/ /admin/help/
/admin/hooks/webhook/
/admin/coordination/workspace/ /admin/coordination/session/ /admin/coordination/channel/ /admin/coordination/artifact/
/admin/coordination/event/ /admin/inbox/message/ /admin/inbox/delivery/ /admin/handoffs/handoff/ /admin/auth/user/
/admin/coordination/event/?p=5000 /admin/inbox/delivery/?q=agent-007 /admin/inbox/delivery/?status__exact=parked
/admin/handoffs/handoff/?status__exact=OPEN /admin/coordination/artifact/{artifact}/change/
"""


def pages(known: dict[str, Any]) -> list[str]:
    """The address of every page, with the filters that cost most, by what a store was filled with."""
    return ADDRESSES.format(**known).split()


def fill_plan(home: Path, cycles: int = 200, open_tasks: int = 60) -> dict[str, str]:
    """Both in a project of its own: what its pages are found by. Of over 60 open tasks nine in ten are completed."""
    from coordination.services import workspaces
    from nexus.core.clock import iso_milliseconds, now
    from nexus.planning import mirror
    from nexus.planning.documents import cycle_row
    from nexus.planning.models import Cycle, Issue, Task
    from nexus.planning.services import plans, tasks
    from nexus.planning.services.changes import Actor
    from nexus.planning.services.tasks import NewTask

    root, moment = home / "planned", now()
    root.mkdir(exist_ok=True)
    nobody, project = Actor(), str(root)
    place = workspaces.locate(project)

    def task(number: int) -> NewTask:
        deps = sorted({each for each in (number - 1, number // 2, number - 7) if 0 < each < number and number % 5 != 1})
        context = f"Part {number} is slow, and its cache is read twice. " * 10
        return NewTask(f"Rewrite part {number} of the parser", context, deps, *[None] * 7)

    issues = [f"Which parser does part {number} have?" for number in range(10)]
    plans.start(project_root=project, topic="Parser", issues=issues, research_summary="Read.", by=nobody)
    for number in range(1, min(open_tasks, 60) + 1):
        tasks.add(project_root=project, new=task(number), goal=None, decisions=None, by=nobody)
    with mirror.changing(place) as change:
        entries = [{**task(n)._asdict(), "id": n, "status": "completed"} for n in range(1, 51)]
        done = [{name: value for name, value in entry.items() if value is not None} for entry in entries]
        plan = {"id": 1, "topic": "Lexer", "issues": [], "created_at": iso_milliseconds(moment)}
        for position in range(1, cycles + 1):
            cycle: Any = {"completed_at": iso_milliseconds(moment), "branch": "main", "plan": plan, "tasks": done}
            cycle_row(place.workspace_id, cycle, position).save()
            Task.objects.bulk_create(
                Task(
                    task_key=f"tsk_{position:05}_{entry['id']:02}", workspace_id=place.workspace_id,
                    number=entry["id"], position=entry["id"], title=entry["title"], context=entry["context"],
                    deps=entry["deps"], status="completed", created_at=moment, updated_at=moment, closed_at=moment,
                )
                for entry in entries
            )  # fmt: skip
        change.archived = True
        Task.objects.bulk_create(
            Task(
                task_key=f"tsk_open_{number:05}", workspace_id=place.workspace_id, number=number, position=number,
                title=task(number).title, context=task(number).context, deps=task(number).deps,
                status="completed" if number % 10 else "pending", created_at=moment, updated_at=moment,
            )
            for number in range(61, open_tasks + 1)
        )  # fmt: skip
    return {
        "place": place.workspace_id,
        "task": Task.objects.current(place.workspace_id)[30].pk,
        "cycle": str(Cycle.objects.all()[0].pk),
        "issue": str(Issue.objects.all()[0].pk),
    }


def fill_pool(home: Path, end: datetime) -> dict[str, str]:
    """The ids of an agent that said much, and of a question that waits."""
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

    Agent.everyone.bulk_create(
        Agent(agent_id=f"worker-{number:04d}", created_at=end, updated_at=end, last_seen_at=end)
        for number in range(AGENTS)
    )
    PoolAgent.objects.bulk_create(map(agent, range(AGENTS + ENDED)), batch_size=500)
    Turn.objects.bulk_create(map(turn, range(AGENTS * TURNS)), batch_size=500)
    Entry.objects.bulk_create(map(entry, range(ENTRIES)), batch_size=500)
    Question.objects.bulk_create(map(question, range(QUESTIONS)), batch_size=500)
    return {"agent": "pool_0000000", "question": "qst_0000000"}

"""`nexus review`: the review of finished work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.verbs import Option, Verb, VerbsCommand, time

AGENT = Option("agent_id", help="The agent whose work it is.")
COMMENT = Option("comment_id", help="Its comment_id, as the review shows it.")


class Command(VerbsCommand):
    toolset = "control"
    help = "Review finished work: comment on it, send it back, approve it."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_reviews",
                options=["limit"],
                rows="reviews",
                columns={
                    "agent": "agent_id",
                    "work": lambda row: row.get("branch") or f"task {row['id']}",
                    "files": "files",
                    "lines": lambda row: f"+{row['added']} -{row['removed']}" if "added" in row else "",
                    "unblocks": "unblocks",
                    "drafts": "drafts",
                    "title": lambda row: (row.get("handoff") or row).get("title", "")[:60],
                    "project": lambda row: row.get("origin") or row["project_root"],
                    "since": time("since"),
                },
                examples=["nexus review", "nexus review list --json"],
            ),
            Verb(
                "show",
                operation="pool_get_review",
                words=[AGENT],
                options=["worktree_id"],
                act=self._show,
                examples=["nexus review show smith"],
            ),
            Verb(
                "comment",
                operation="pool_add_comment",
                words=[AGENT, Option("text", spelled="TEXT", help="What you say.")],
                options=["path", "line", "last_line", "side", "seen", "worktree_id"],
                examples=['nexus review comment smith "Rename this." --path src/main.py --line 12'],
            ),
            Verb(
                "remove",
                operation="pool_remove_comment",
                words=[COMMENT],
                each=True,
                examples=["nexus review remove comment_…"],
            ),
            Verb(
                "send",
                operation="pool_send_comments",
                words=[AGENT],
                options=["worktree_id"],
                examples=["nexus review send smith"],
            ),
            Verb(
                "approve",
                operation="pool_approve_work",
                words=[AGENT],
                options=["seen", "unseen", "worktree_id"],
                examples=["nexus review approve smith --seen 9d5b…"],
            ),
            Verb(
                "abandon",
                operation="pool_abandon_work",
                words=[AGENT],
                options=["worktree_id", "lost_too"],
                asks="End {agent_id}, and abandon its work?",
                examples=["nexus review abandon smith"],
            ),
        )

    def _show(self, options: Mapping[str, Any]) -> int:
        data = self.answer(options)
        if options["json"]:
            return self.show(options, data)
        of, checks = data["handoff"], data["checks"]
        facts = {name: data[name] for name in ("agent_id", "branch", "path", "origin", "state", "seen", "run_id")}
        facts["handoff"] = f"{of['title']}, {of['status']}" if of else None
        facts["cannot_be_merged"] = data["why_not"] or None
        facts["unshown"] = ", ".join(data["unshown"]) or None
        for each in checks[-1]["receipts"] if checks else ():
            facts[each["criterion"]] = "passed" if each["passed"] else each["why"]
        older = data.get("comments_left_off", 0)
        left_off = {"older_comments": f"{older}, not shown"} if older else {}
        self.print_facts({**facts, "summary": data["summary"], **left_off})
        for each in data["comments"]:
            lines = "" if each["line"] is None else f":{each['line']}-{each['last_line']} ({each['side']})"
            about = f"{each['path']}{lines}" if each["path"] else "all of it"
            state = each["outcome"] or ("sent" if each["sent_at"] else "draft")
            self.stdout.write("")
            words = {"the agent": each["words"]} if each["words"] else {}
            self.print_facts({each["comment_id"]: state, "about": about, each["author"]: each["text"], **words})
        self.stdout.write("")
        self.print_facts({"diff": data["diff"]})
        return 0

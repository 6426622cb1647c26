"""What `nexus hook` asks of this app, without Django: the messages in topics that wait for an agent, as SQL.

`nexus.topics.notices` finds the same.
"""

from __future__ import annotations

from nexus.core.harness_events import HOOK_QUERIES, HookQuery

# Messages after the cursor of a peer that is the agent; and messages that name the agent where it is no peer.
WAITING = """
SELECT * FROM (
    SELECT m.message_id
    FROM topic_peers p JOIN topic_messages m
      ON m.topic_id = p.topic_id AND m.seq > max(p.last_seq, p.own_through) AND m.sender <> p.agent_name
    WHERE p.agent_id = :agent OR (p.agent_id IS NULL AND p.agent_name = :agent)
    LIMIT 1000
)
UNION
SELECT * FROM (
    SELECT m.message_id
    FROM topic_mentions n JOIN topic_messages m USING (document) JOIN topics t USING (topic_id)
    WHERE n.agent_id = :agent AND t.status = 'open' AND NOT EXISTS (
        SELECT 1 FROM topic_peers p WHERE p.topic_id = m.topic_id
        AND (p.agent_id = :agent OR (p.agent_id IS NULL AND p.agent_name = :agent))
    )
    LIMIT 1000
)
"""

PERSONAL = """
SELECT m.message_id FROM topic_mentions n JOIN topic_messages m USING (document)
WHERE n.agent_id = :agent ORDER BY document DESC LIMIT 1000
"""

HOOK_QUERIES.append(HookQuery("topic_mentions", WAITING, personal=PERSONAL))

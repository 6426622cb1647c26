"""The statements of topics that each sync runs."""

from __future__ import annotations

from nexus.core.database.sql import Read, Write
from nexus.topics.models import Peer, Topic, TopicMessage

topic: Read[Topic] = Read("SELECT {t} FROM topics t WHERE topic_id = %(topic_id)s", t=Topic)
peer: Read[Peer] = Read(
    "SELECT {p} FROM topic_peers p WHERE topic_id = %(topic_id)s AND agent_name = %(agent_name)s", p=Peer
)
messages: Read[TopicMessage] = Read(
    "SELECT {m} FROM topic_messages m WHERE topic_id = %(topic_id)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s",
    m=TopicMessage,
)
messages_of_others: Read[TopicMessage] = Read(
    """
    SELECT {m} FROM topic_messages m WHERE topic_id = %(topic_id)s AND seq > %(after)s AND sender <> %(agent_name)s
    ORDER BY seq LIMIT %(limit)s
    """,
    m=TopicMessage,
)
keep_cursor = Write("""
    UPDATE topic_peers SET last_seq = %(last_seq)s, own_through = %(own_through)s, synced_at = %(moment)s
    WHERE id = %(pk)s
""")
count = Write("UPDATE topics SET last_seq = %(last_seq)s, last_message_at = %(moment)s WHERE topic_id = %(topic_id)s")

# delete() of the ORM would read each message first, to delete mentions.
delete_all = Write("DELETE FROM topic_messages WHERE topic_id = %(topic_id)s")
# UNION, not UNION ALL: replies of an imported topic may form a cycle.
_THREAD = """
    WITH RECURSIVE gone(message_id) AS (
        SELECT CAST(%(message_id)s AS varchar) UNION
        SELECT m.message_id FROM topic_messages m JOIN gone g
        ON m.topic_id = %(topic_id)s AND m.reply_to = g.message_id
    )
    SELECT message_id FROM gone
"""
count_thread: Read[tuple[int]] = Read(f"SELECT count(*) FROM ({_THREAD}) thread")
delete_mentions = Write(f"""
    DELETE FROM topic_mentions
    WHERE document IN (SELECT document FROM topic_messages WHERE message_id IN ({_THREAD}))
""")
delete_thread = Write(f"DELETE FROM topic_messages WHERE message_id IN ({_THREAD})")

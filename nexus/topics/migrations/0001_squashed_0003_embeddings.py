import django.db.models.deletion
from django.db import migrations, models

from nexus.core.database.migrations import SQLFor

# The index reads the text of the messages themselves and keeps none; triggers hold it in step.
INDEX = """
    CREATE VIRTUAL TABLE topic_search USING fts5(
        topic_id, content_markdown, content='topic_messages', content_rowid='document',
        tokenize='unicode61 remove_diacritics 2'
    )
"""
POSTGRESQL = [
    "CREATE TABLE topic_search (document bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX topic_search_words ON topic_search USING gin (words)",
]


class Migration(migrations.Migration):

    replaces = [('topics', '0003_embeddings')]

    initial = True

    dependencies = [
        ('inbox', '0001_squashed_0014_commits'),  # nexus_words
    ]

    operations = [
        migrations.CreateModel(
            name='Topic',
            fields=[
                ('topic_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255)),
                ('status', models.CharField(choices=[('open', 'Open'), ('closed', 'Closed')], default='open', max_length=16)),
                ('metadata', models.JSONField(null=True)),
                ('last_seq', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
                ('last_message_at', models.DateTimeField(null=True)),
                ('closed_at', models.DateTimeField(null=True)),
                ('close_reason', models.TextField(null=True)),
            ],
            options={
                'db_table': 'topics',
                'indexes': [models.Index(fields=['name', 'status', 'created_at'], name='topics_by_name'), models.Index(fields=['created_at', 'topic_id'], name='topics_by_age'), models.Index(condition=models.Q(('closed_at__isnull', False)), fields=['closed_at'], name='topics_closed')],
                'constraints': [models.CheckConstraint(condition=models.Q(('topic_id', ''), _negated=True), name='topics_topic_id_not_empty'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='topics_name_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['open', 'closed'])), name='topics_status_known'), models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', False), ('status', 'closed')), models.Q(('closed_at__isnull', True), ('status', 'open')), _connector='OR'), name='topics_closed_at_iff_closed')],
            },
        ),
        migrations.CreateModel(
            name='Peer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_name', models.CharField(max_length=64)),
                ('agent_id', models.CharField(max_length=255, null=True)),
                ('token_hash', models.CharField(max_length=64, null=True)),
                ('last_seq', models.BigIntegerField(default=0)),
                ('own_through', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
                ('claimed_at', models.DateTimeField(null=True)),
                ('synced_at', models.DateTimeField(null=True)),
                ('topic', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='peers', to='topics.topic')),
            ],
            options={
                'db_table': 'topic_peers',
                'indexes': [models.Index(fields=['topic', 'synced_at'], name='topic_peers_by_presence'), models.Index(condition=models.Q(('agent_id__isnull', False)), fields=['agent_id'], name='topic_peers_of_agent'), models.Index(condition=models.Q(('agent_id__isnull', True)), fields=['agent_name'], name='topic_peers_by_name')],
                'constraints': [models.CheckConstraint(condition=models.Q(('agent_name', ''), _negated=True), name='topic_peers_agent_name_not_empty'), models.CheckConstraint(condition=models.Q(('token_hash', ''), _negated=True), name='topic_peers_token_hash_not_empty'), models.UniqueConstraint(fields=('topic', 'agent_name'), name='topic_peers_name_once'), models.CheckConstraint(condition=models.Q(('last_seq__gte', 0)), name='topic_peers_cursor_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='TopicMessage',
            fields=[
                ('document', models.BigAutoField(primary_key=True, serialize=False)),
                ('message_id', models.CharField(max_length=255, unique=True)),
                ('seq', models.BigIntegerField()),
                ('sender', models.CharField(max_length=64)),
                ('message_type', models.CharField(max_length=32)),
                ('reply_to', models.CharField(max_length=255, null=True)),
                ('content_markdown', models.TextField()),
                ('metadata', models.JSONField(null=True)),
                ('client_message_id', models.CharField(max_length=128, null=True)),
                ('created_at', models.DateTimeField()),
                ('topic', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='topics.topic')),
            ],
            options={
                'db_table': 'topic_messages',
                'indexes': [models.Index(condition=models.Q(('reply_to__isnull', False)), fields=['topic', 'reply_to'], name='topic_replies')],
                'constraints': [models.CheckConstraint(condition=models.Q(('message_id', ''), _negated=True), name='topic_messages_message_id_not_empty'), models.CheckConstraint(condition=models.Q(('sender', ''), _negated=True), name='topic_messages_sender_not_empty'), models.UniqueConstraint(fields=('topic', 'seq'), name='topic_messages_numbered_once'), models.UniqueConstraint(condition=models.Q(('client_message_id__isnull', False)), fields=('topic', 'sender', 'client_message_id'), name='topic_messages_sent_once'), models.CheckConstraint(condition=models.Q(('seq__gte', 1)), name='topic_messages_seq_from_one')],
            },
        ),
        migrations.CreateModel(
            name='Mention',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_id', models.CharField(max_length=255)),
                ('message', models.ForeignKey(db_column='document', db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='mentions', to='topics.topicmessage')),
            ],
            options={
                'db_table': 'topic_mentions',
                'indexes': [models.Index(fields=['agent_id'], name='topic_mentions_of_agent')],
                'constraints': [models.UniqueConstraint(fields=('message', 'agent_id'), name='topic_mentions_once')],
            },
        ),
        migrations.CreateModel(
            name='Embedding',
            fields=[
                ('message', models.OneToOneField(db_column='document', on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='embedding', serialize=False, to='topics.topicmessage')),
                ('model', models.CharField(blank=True, max_length=1100)),
                ('vector', models.BinaryField()),
            ],
            options={
                'db_table': 'topic_embeddings',
                'indexes': [models.Index(fields=['model'], name='topic_embeddings_of_model')],
            },
        ),
        SQLFor("sqlite", INDEX, "DROP TABLE topic_search"),
        *[SQLFor("postgresql", statement, "DROP TABLE IF EXISTS topic_search") for statement in POSTGRESQL],
    ]

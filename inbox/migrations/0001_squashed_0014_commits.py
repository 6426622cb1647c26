import django.db.models.deletion
from django.db import migrations, models

from nexus.core.database.migrations import SQLFor

# One document per event: its type, actor and payload; for a message its sender, subject, body and artifacts instead. The
# index keeps no text of its own (content=''), and `message_documents` leads from a document to its message once the event
# is pruned. The triggers that keep the index in step are made after every migrate: see inbox/models.py.
SQLITE = [
    "CREATE VIRTUAL TABLE search_index USING fts5(words, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')",
    "CREATE TABLE message_documents (document INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE)",
]
# On PostgreSQL a document's words are tokens as FTS5 makes them: runs of letters and digits without case and accents.
# Bounds keep every text within what a tsvector holds (1 MB in all, 2,046 bytes a word); none is refused.
TOKENS = """
    CREATE FUNCTION nexus_tokens(text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT array_remove(regexp_split_to_array(
            left(normalize(regexp_replace(
                normalize(translate(lower(left($1, 200000) COLLATE "und-x-icu"), 'ς', 'σ'), NFD),
                '[\u0300-\u036f]+', '', 'g'
            ), NFC), 200000) COLLATE "und-x-icu",
            '[^[:alnum:]²³¹¼½¾]+'
        ), '')
    $$
"""
# Not to_tsvector: its parser has an idea of numbers, and the alphabet of the database's locale.
WORDS = """
    CREATE FUNCTION nexus_words(text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT coalesce(string_agg(left(token, 255) || ':' || place, ' '), '')::tsvector
        FROM unnest(nexus_tokens($1)) WITH ORDINALITY AS found(token, place)
    $$
"""
POSTGRESQL = [
    TOKENS,
    WORDS,
    "CREATE TABLE search_index (document bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX search_index_words ON search_index USING gin (words)",
    "CREATE TABLE message_documents (document bigint PRIMARY KEY, message_id text NOT NULL UNIQUE)",
]


def undo(statement: str) -> str:
    kind, name = statement.replace("VIRTUAL ", "").split()[1:3]
    return f"DROP {kind} {name}"


class Migration(migrations.Migration):

    replaces = [('inbox', '0014_commits')]

    initial = True

    dependencies = [
        ('coordination', '0001_squashed_0020_events_by_age'),
    ]

    operations = [
        migrations.CreateModel(
            name='Message',
            fields=[
                ('message_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('from_agent_id', models.CharField(max_length=255)),
                ('from_session_id', models.CharField(max_length=255, null=True)),
                ('target', models.JSONField(null=True)),
                ('subject', models.TextField()),
                ('body', models.TextField()),
                ('artifacts', models.JSONField(default=list)),
                ('created_at', models.DateTimeField()),
                ('channel', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='coordination.channel')),
                ('parent', models.ForeignKey(db_column='parent_message_id', db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='replies', to='inbox.message')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='coordination.workspace', to_field='number')),
                ('recipients_count', models.PositiveIntegerField(default=0)),
                ('client_id', models.CharField(max_length=255, null=True)),
                ('trace_id', models.CharField(max_length=255, null=True)),
                ('expect', models.CharField(max_length=16, null=True)),
                ('expect_by', models.DateTimeField(null=True)),
                ('told_at', models.DateTimeField(null=True)),
                ('proof', models.CharField(max_length=16, null=True)),
            ],
            options={
                'db_table': 'messages',
                'indexes': [models.Index(condition=models.Q(('parent__isnull', False)), fields=['parent'], name='messages_by_parent'), models.Index(condition=models.Q(('recipients_count', 0)), fields=['message_id'], name='messages_to_nobody'), models.Index(fields=['workspace', 'message_id'], name='messages_by_workspace'), models.Index(condition=models.Q(('channel__isnull', False)), fields=['channel', 'message_id'], name='messages_by_channel'), models.Index(fields=['from_agent_id', 'message_id'], name='messages_of_sender'), models.Index(condition=models.Q(('expect_by__isnull', False)), fields=['expect_by'], name='messages_expected')],
                'constraints': [models.CheckConstraint(condition=models.Q(('message_id', ''), _negated=True), name='messages_message_id_not_empty'), models.CheckConstraint(condition=models.Q(('from_agent_id', ''), _negated=True), name='messages_from_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('subject', ''), _negated=True), name='messages_subject_not_empty'), models.CheckConstraint(condition=models.Q(('body', ''), _negated=True), name='messages_body_not_empty'), models.UniqueConstraint(condition=models.Q(('client_id__isnull', False)), fields=('from_agent_id', 'client_id'), name='messages_once')],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('delivery_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('unread', 'Unread'), ('delivered', 'Delivered'), ('read', 'Read'), ('parked', 'Parked')], default='unread', max_length=16)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('delivered_at', models.DateTimeField(null=True)),
                ('lease_expires_at', models.DateTimeField(null=True)),
                ('read_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField()),
                ('recipient', models.ForeignKey(db_column='recipient_agent_id', db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='coordination.agent')),
                ('message', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='inbox.message')),
                ('noticed_at', models.DateTimeField(null=True)),
                ('noticed_by', models.CharField(max_length=255, null=True)),
                ('delivered_to', models.CharField(max_length=255, null=True)),
                ('read_by', models.CharField(max_length=255, null=True)),
                ('commits', models.JSONField(null=True)),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'db_table': 'message_deliveries',
                'indexes': [models.Index(condition=models.Q(('status', 'delivered')), fields=['lease_expires_at'], name='deliveries_by_lease'), models.Index(condition=models.Q(('status', 'read')), fields=['read_at'], name='deliveries_prunable'), models.Index(condition=models.Q(('status', 'unread'), ('status', 'parked'), _connector='OR'), fields=['status', 'created_at'], name='deliveries_waiting'), models.Index(fields=['recipient', 'delivery_id'], name='deliveries_to'), models.Index(fields=['recipient', 'message'], name='deliveries_to_by_message'), models.Index(condition=models.Q(('status', 'unread'), ('status', 'delivered'), ('status', 'parked'), _connector='OR'), fields=['recipient', 'status', 'delivery_id'], name='deliveries_in_lanes'), models.Index(condition=models.Q(('status', 'read')), fields=['recipient', 'status', '-read_at'], name='deliveries_read')],
                'constraints': [models.CheckConstraint(condition=models.Q(('delivery_id', ''), _negated=True), name='deliveries_delivery_id_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['unread', 'delivered', 'read', 'parked'])), name='deliveries_status_known'), models.UniqueConstraint(fields=('message', 'recipient'), name='deliveries_once'), models.CheckConstraint(condition=models.Q(('attempts__gte', 0)), name='deliveries_attempts_not_negative'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'delivered'), _negated=True), models.Q(('delivered_at__isnull', False), ('lease_expires_at__isnull', False)), _connector='OR'), name='deliveries_in_flight_has_lease'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'read'), _negated=True), ('read_at__isnull', False), _connector='OR'), name='deliveries_read_has_time')],
            },
        ),
        *[SQLFor("sqlite", statement, undo(statement)) for statement in SQLITE],
        *[SQLFor("postgresql", statement, undo(statement)) for statement in POSTGRESQL],
    ]

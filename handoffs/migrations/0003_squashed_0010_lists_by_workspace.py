import django.db.models.deletion
from django.db import migrations, models

from handoffs.models import title_of
from nexus.core.database.steps import SQLFor

# The triggers that keep the index in step are made after every migrate: see handoffs/models.py.
INDEX = """
    CREATE VIRTUAL TABLE handoff_search USING fts5(
        title, payload, result, content='handoffs', content_rowid='created_event_id',
        tokenize='unicode61 remove_diacritics 2'
    )
"""
POSTGRESQL = [
    "CREATE TABLE handoff_search (document bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX handoff_search_words ON handoff_search USING gin (words)",
    """
    INSERT INTO handoff_search (document, words)
    SELECT created_event_id, nexus_words(concat_ws(' ', title, payload, result)) FROM handoffs
    """,
]
AT_ONCE = 1_000


def name(apps, schema_editor):
    """Give the handoffs that were there a title made from what they say."""
    handoffs = apps.get_model("handoffs", "Handoff").objects
    batch = []
    for handoff in handoffs.only("pk", "payload", "target").iterator(chunk_size=AT_ONCE):
        handoff.title = title_of(handoff.payload, handoff.target)
        batch.append(handoff)
        if len(batch) == AT_ONCE:
            handoffs.bulk_update(batch, ["title"])
            batch.clear()
    handoffs.bulk_update(batch, ["title"])


class Migration(migrations.Migration):

    replaces = [
        ('handoffs', '0003_lasting_work'),
        ('handoffs', '0004_titles'),
        ('handoffs', '0005_remarks_deadlines'),
        ('handoffs', '0006_debt_notices'),
        ('handoffs', '0007_waiting_handoffs'),
        ('handoffs', '0008_search'),
        ('handoffs', '0009_one_look_at_what_was_held'),
        ('handoffs', '0010_lists_by_workspace'),
    ]

    dependencies = [
        ('coordination', '0012_workspaces_by_age'),
        ('handoffs', '0002_tasks_of_planning'),
        ('inbox', '0002_search'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='handoff',
            name='handoffs_status_known',
        ),
        migrations.RemoveConstraint(
            model_name='handoff',
            name='handoffs_claim_iff_claimed',
        ),
        migrations.RemoveIndex(
            model_name='handoff',
            name='handoffs_by_lease',
        ),
        migrations.AddField(
            model_name='handoff',
            name='blocked_reason',
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name='handoff',
            name='claimed_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='handoff',
            name='client_id',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddField(
            model_name='handoff',
            name='deadline_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='handoff',
            name='lease_seconds',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='handoff',
            name='title',
            field=models.CharField(default='Handoff', max_length=200),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='handoff',
            name='verifier',
            field=models.CharField(max_length=271, null=True),
        ),
        migrations.AlterField(
            model_name='handoff',
            name='status',
            field=models.CharField(choices=[('OPEN', 'Open'), ('CLAIMED', 'Claimed'), ('IN_PROGRESS', 'In Progress'), ('BLOCKED', 'Blocked'), ('SUBMITTED', 'Submitted'), ('COMPLETED', 'Completed'), ('REJECTED', 'Rejected'), ('CANCELLED', 'Cancelled'), ('EXPIRED', 'Expired')], default='OPEN', max_length=16),
        ),
        migrations.AddIndex(
            model_name='handoff',
            index=models.Index(condition=models.Q(('lease_expires_at__isnull', False)), fields=['workspace', 'lease_expires_at'], name='handoffs_by_lease'),
        ),
        migrations.AddIndex(
            model_name='handoff',
            index=models.Index(condition=models.Q(('lease_expires_at__isnull', False)), fields=['claimed_by'], name='handoffs_by_holder'),
        ),
        migrations.AddConstraint(
            model_name='handoff',
            constraint=models.UniqueConstraint(condition=models.Q(('client_id__isnull', False)), fields=('from_agent_id', 'client_id'), name='handoffs_once'),
        ),
        migrations.AddConstraint(
            model_name='handoff',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['OPEN', 'CLAIMED', 'IN_PROGRESS', 'BLOCKED', 'SUBMITTED', 'COMPLETED', 'REJECTED', 'CANCELLED', 'EXPIRED'])), name='handoffs_status_known'),
        ),
        migrations.AddConstraint(
            model_name='handoff',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('claimed_by__isnull', False), ('lease_expires_at__isnull', False), ('status__in', ('CLAIMED', 'IN_PROGRESS', 'BLOCKED'))), models.Q(('claimed_by__isnull', True), ('lease_expires_at__isnull', True), ('status', 'OPEN')), models.Q(('claimed_by__isnull', False), ('lease_expires_at__isnull', True), ('status', 'SUBMITTED')), models.Q(('lease_expires_at__isnull', True), ('status__in', ('COMPLETED', 'REJECTED', 'CANCELLED', 'EXPIRED'))), _connector='OR'), name='handoffs_claim_iff_claimed'),
        ),
        migrations.AddIndex(
            model_name='handoff',
            index=models.Index(condition=models.Q(('deadline_at__isnull', False), ('status', 'OPEN')), fields=['workspace', 'deadline_at'], name='handoffs_overdue'),
        ),
        migrations.AddIndex(
            model_name='handoff',
            index=models.Index(condition=models.Q(('status', 'OPEN')), fields=['from_agent_id'], name='handoffs_waiting'),
        ),
        migrations.RemoveIndex(
            model_name='handoff',
            name='handoffs_by_change',
        ),
        migrations.AddIndex(
            model_name='handoff',
            index=models.Index(fields=['workspace', 'updated_at', 'created_at', 'status', 'claimed_by', 'claimed_at', 'lease_expires_at', 'handoff_id'], name='handoffs_by_change'),
        ),
        migrations.AddIndex(
            model_name='handoff',
            index=models.Index(fields=['workspace', 'handoff_id'], name='handoffs_by_workspace'),
        ),
        migrations.CreateModel(
            name='Remark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_id', models.CharField(max_length=255)),
                ('kind', models.CharField(choices=[('late_result', 'Late Result'), ('result', 'Result'), ('returned', 'Returned')], max_length=16)),
                ('text', models.TextField(null=True)),
                ('created_at', models.DateTimeField()),
                ('handoff', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='remarks', to='handoffs.handoff')),
            ],
            options={
                'db_table': 'handoff_remarks',
                'constraints': [models.CheckConstraint(condition=models.Q(('agent_id', ''), _negated=True), name='handoff_remarks_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('kind__in', ['late_result', 'result', 'returned'])), name='handoff_remarks_kind_known')],
            },
        ),
        migrations.CreateModel(
            name='DebtNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_id', models.CharField(max_length=255)),
                ('debt', models.CharField(max_length=271)),
                ('told_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'debt_notices',
                'constraints': [models.CheckConstraint(condition=models.Q(('agent_id', ''), _negated=True), name='debt_notices_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('debt', ''), _negated=True), name='debt_notices_debt_not_empty'), models.UniqueConstraint(fields=('agent_id', 'debt'), name='debt_notices_once')],
            },
        ),
        # After every change of the table: PostgreSQL changes no table in the transaction that changed its rows.
        migrations.RunPython(name, migrations.RunPython.noop),
        SQLFor("sqlite", INDEX, "DROP TABLE handoff_search"),
        SQLFor("sqlite", "INSERT INTO handoff_search(handoff_search) VALUES ('rebuild')"),
        *[SQLFor("postgresql", statement, "DROP TABLE IF EXISTS handoff_search") for statement in POSTGRESQL],
    ]

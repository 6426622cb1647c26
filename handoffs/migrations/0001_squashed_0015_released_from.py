import django.db.models.deletion
from django.db import migrations, models

from nexus.core.database.migrations import SQLFor

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
]


class Migration(migrations.Migration):

    replaces = [('handoffs', '0015_released_from')]

    initial = True

    dependencies = [
        ('coordination', '0001_squashed_0020_events_by_age'),
        ('inbox', '0001_squashed_0014_commits'),  # nexus_words
    ]

    operations = [
        migrations.CreateModel(
            name='Handoff',
            fields=[
                ('handoff_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('from_agent_id', models.CharField(max_length=255)),
                ('target', models.JSONField()),
                ('visibility', models.CharField(choices=[('public', 'Public'), ('eligible', 'Eligible'), ('private', 'Private')], max_length=16)),
                ('status', models.CharField(choices=[('OPEN', 'Open'), ('CLAIMED', 'Claimed'), ('IN_PROGRESS', 'In Progress'), ('BLOCKED', 'Blocked'), ('SUBMITTED', 'Submitted'), ('COMPLETED', 'Completed'), ('REJECTED', 'Rejected'), ('CANCELLED', 'Cancelled'), ('EXPIRED', 'Expired')], default='OPEN', max_length=16)),
                ('claimed_by', models.CharField(max_length=255, null=True)),
                ('lease_expires_at', models.DateTimeField(null=True)),
                ('payload', models.TextField(null=True)),
                ('result', models.TextField(null=True)),
                ('rejected_reason', models.TextField(null=True)),
                ('created_event_id', models.BigIntegerField(unique=True)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='handoffs', to='coordination.workspace')),
                ('task_id', models.BigIntegerField(null=True)),
                ('task_key', models.CharField(max_length=255, null=True)),
                ('blocked_reason', models.TextField(null=True)),
                ('claimed_at', models.DateTimeField(null=True)),
                ('client_id', models.CharField(max_length=255, null=True)),
                ('deadline_at', models.DateTimeField(null=True)),
                ('lease_seconds', models.IntegerField(null=True)),
                ('title', models.CharField(max_length=200)),
                ('verifier', models.CharField(max_length=271, null=True)),
                ('claim_epoch', models.PositiveIntegerField(db_default=0, default=0)),
                ('acceptance_criteria', models.JSONField(null=True)),
                ('trace_id', models.CharField(max_length=255, null=True)),
                ('proof', models.CharField(max_length=16, null=True)),
                ('released_from', models.CharField(max_length=255, null=True)),
            ],
            options={
                'db_table': 'handoffs',
                'indexes': [models.Index(fields=['workspace', 'status', 'created_event_id'], name='handoffs_by_status'), models.Index(condition=models.Q(('task_key__isnull', False)), fields=['task_key'], name='handoffs_by_task'), models.Index(condition=models.Q(('lease_expires_at__isnull', False)), fields=['workspace', 'lease_expires_at'], name='handoffs_by_lease'), models.Index(condition=models.Q(('lease_expires_at__isnull', False)), fields=['claimed_by'], name='handoffs_by_holder'), models.Index(condition=models.Q(('deadline_at__isnull', False), ('status', 'OPEN')), fields=['workspace', 'deadline_at'], name='handoffs_overdue'), models.Index(condition=models.Q(('status', 'OPEN')), fields=['from_agent_id'], name='handoffs_waiting'), models.Index(fields=['workspace', 'updated_at', 'created_at', 'status', 'claimed_by', 'claimed_at', 'lease_expires_at', 'handoff_id'], name='handoffs_by_change'), models.Index(fields=['workspace', 'handoff_id'], name='handoffs_by_workspace')],
                'constraints': [models.CheckConstraint(condition=models.Q(('handoff_id', ''), _negated=True), name='handoffs_handoff_id_not_empty'), models.CheckConstraint(condition=models.Q(('from_agent_id', ''), _negated=True), name='handoffs_from_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('visibility__in', ['public', 'eligible', 'private'])), name='handoffs_visibility_known'), models.UniqueConstraint(condition=models.Q(('client_id__isnull', False)), fields=('from_agent_id', 'client_id'), name='handoffs_once'), models.CheckConstraint(condition=models.Q(('status__in', ['OPEN', 'CLAIMED', 'IN_PROGRESS', 'BLOCKED', 'SUBMITTED', 'COMPLETED', 'REJECTED', 'CANCELLED', 'EXPIRED'])), name='handoffs_status_known'), models.CheckConstraint(condition=models.Q(models.Q(('claimed_by__isnull', False), ('lease_expires_at__isnull', False), ('status__in', ('CLAIMED', 'IN_PROGRESS', 'BLOCKED'))), models.Q(('claimed_by__isnull', True), ('lease_expires_at__isnull', True), ('status', 'OPEN')), models.Q(('claimed_by__isnull', False), ('lease_expires_at__isnull', True), ('status', 'SUBMITTED')), models.Q(('lease_expires_at__isnull', True), ('status__in', ('COMPLETED', 'REJECTED', 'CANCELLED', 'EXPIRED'))), _connector='OR'), name='handoffs_claim_iff_claimed')],
            },
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
        migrations.CreateModel(
            name='Dependency',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('depends_on', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='dependents', to='handoffs.handoff')),
                ('done', models.BooleanField(default=False)),
                ('handoff', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='dependencies', to='handoffs.handoff')),
            ],
            options={
                'verbose_name_plural': 'dependencies',
                'indexes': [models.Index(condition=models.Q(('done', False)), fields=['handoff'], name='handoff_dependencies_left')],
                'db_table': 'handoff_dependencies',
                'constraints': [models.UniqueConstraint(fields=('handoff', 'depends_on'), name='handoff_dependencies_once')],
            },
        ),
        migrations.CreateModel(
            name='ReviewedChecks',
            fields=[
                ('workspace', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='checks', serialize=False, to='coordination.workspace')),
                ('digest', models.CharField(max_length=64)),
                ('checks', models.JSONField()),
                ('reviewed_by', models.CharField(max_length=255)),
                ('reviewed_at', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'reviewed checks',
                'db_table': 'handoff_reviewed_checks',
            },
        ),
        migrations.CreateModel(
            name='CheckRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('claim_epoch', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Running'), ('passed', 'Passed'), ('failed', 'Failed'), ('dropped', 'Dropped')], max_length=16)),
                ('epoch', models.PositiveIntegerField(default=0)),
                ('due_at', models.DateTimeField()),
                ('why', models.TextField(null=True)),
                ('receipts', models.JSONField(default=list)),
                ('facts', models.JSONField(null=True)),
                ('created_at', models.DateTimeField()),
                ('began_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('handoff', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='check_runs', to='handoffs.handoff')),
            ],
            options={
                'db_table': 'handoff_check_runs',
                'indexes': [models.Index(condition=models.Q(('state__in', ('waiting', 'running'))), fields=['due_at'], name='handoff_check_runs_open')],
                'constraints': [models.UniqueConstraint(fields=('handoff', 'claim_epoch'), name='handoff_check_runs_once'), models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'running', 'passed', 'failed', 'dropped'])), name='handoff_check_runs_state_known')],
            },
        ),
        SQLFor("sqlite", INDEX, "DROP TABLE handoff_search"),
        *[SQLFor("postgresql", statement, "DROP TABLE IF EXISTS handoff_search") for statement in POSTGRESQL],
    ]

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('planning', '0006_comments')]

    initial = True

    dependencies = [
        ('coordination', '0001_squashed_0020_events_by_age'),
    ]

    operations = [
        migrations.CreateModel(
            name='Board',
            fields=[
                ('workspace', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='board', serialize=False, to='coordination.workspace')),
                ('goal', models.TextField(default='')),
                ('decisions', models.JSONField(default=list)),
                ('extra', models.JSONField(null=True)),
            ],
            options={
                'db_table': 'task_boards',
            },
        ),
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('workspace', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='plan', serialize=False, to='coordination.workspace')),
                ('number', models.PositiveBigIntegerField()),
                ('topic', models.TextField()),
                ('research_summary', models.TextField(null=True)),
                ('created_at', models.TextField()),
                ('next_issue', models.PositiveBigIntegerField(default=1)),
                ('extra', models.JSONField(null=True)),
                ('started_by', models.CharField(max_length=255, null=True)),
            ],
            options={
                'db_table': 'plans',
            },
        ),
        migrations.CreateModel(
            name='Cycle',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveIntegerField(null=True)),
                ('digest', models.CharField(max_length=64)),
                ('completed_at', models.TextField()),
                ('branch', models.TextField()),
                ('plan_number', models.PositiveBigIntegerField(null=True)),
                ('topic', models.TextField(null=True)),
                ('task_count', models.PositiveIntegerField()),
                ('document', models.TextField()),
                ('words', models.TextField()),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='cycles', to='coordination.workspace')),
            ],
            options={
                'db_table': 'plan_cycles',
                'indexes': [models.Index(fields=['workspace', 'position'], name='plan_cycles_in_order'), models.Index(fields=['workspace', 'digest'], name='plan_cycles_by_digest')],
            },
        ),
        migrations.CreateModel(
            name='MirroredFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('machine', models.CharField(max_length=255)),
                ('name', models.CharField(max_length=64)),
                ('ours', models.JSONField(default=list)),
                ('behind', models.BooleanField(default=False)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='coordination.workspace')),
                ('extra', models.JSONField(null=True)),
            ],
            options={
                'db_table': 'plan_files',
                'constraints': [models.UniqueConstraint(fields=('workspace', 'machine', 'name'), name='plan_files_once')],
            },
        ),
        migrations.CreateModel(
            name='Issue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveBigIntegerField()),
                ('position', models.PositiveIntegerField()),
                ('title', models.TextField()),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('decided', 'Decided')], default='pending', max_length=16)),
                ('decision', models.TextField(null=True)),
                ('how_agents', models.JSONField(null=True)),
                ('how_summary', models.JSONField(null=True)),
                ('how_agent_ids', models.JSONField(null=True)),
                ('decided_by', models.CharField(max_length=255, null=True)),
                ('decided_at', models.DateTimeField(null=True)),
                ('plan', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='issues', to='planning.plan')),
                ('extra', models.JSONField(null=True)),
            ],
            options={
                'db_table': 'plan_issues',
                'constraints': [models.UniqueConstraint(fields=('plan', 'number'), name='plan_issues_number_once'), models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'decided'])), name='plan_issues_status_known')],
            },
        ),
        migrations.CreateModel(
            name='Task',
            fields=[
                ('task_key', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('number', models.PositiveBigIntegerField()),
                ('position', models.PositiveIntegerField()),
                ('title', models.TextField()),
                ('context', models.TextField()),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('in_progress', 'In Progress'), ('completed', 'Completed')], default='pending', max_length=16)),
                ('deps', models.JSONField(default=list)),
                ('approach', models.TextField(null=True)),
                ('acceptance', models.TextField(null=True)),
                ('risk', models.TextField(null=True)),
                ('plan_issue', models.BigIntegerField(null=True)),
                ('owner', models.TextField(null=True)),
                ('owner_agent_id', models.TextField(null=True)),
                ('owner_reuse_policy', models.CharField(choices=[('fresh', 'Fresh'), ('resume_if_same_artifact', 'Same Artifact'), ('resume', 'Resume')], max_length=32, null=True)),
                ('stamp', models.TextField(null=True)),
                ('held_by', models.CharField(max_length=255, null=True)),
                ('created_by', models.CharField(max_length=255, null=True)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(null=True)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='coordination.workspace')),
                ('extra', models.JSONField(null=True)),
                ('claim_epoch', models.PositiveIntegerField(db_default=0, default=0)),
                ('acceptance_criteria', models.JSONField(null=True)),
                ('begun_at', models.DateTimeField(null=True)),
                ('submitted_at', models.DateTimeField(null=True)),
                ('submitted_by', models.CharField(max_length=255, null=True)),
                ('verifier', models.TextField(null=True)),
            ],
            options={
                'db_table': 'plan_tasks',
                'indexes': [models.Index(fields=['workspace', 'closed_at'], name='plan_tasks_by_cycle'), models.Index(condition=models.Q(('closed_at', None)), fields=['status', 'task_key'], name='plan_tasks_by_status')],
                'constraints': [models.CheckConstraint(condition=models.Q(('task_key', ''), _negated=True), name='plan_tasks_task_key_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'in_progress', 'completed'])), name='plan_tasks_status_known'), models.UniqueConstraint(condition=models.Q(('closed_at', None)), fields=('workspace', 'number'), name='plan_tasks_number_once')],
            },
        ),
        migrations.CreateModel(
            name='TaskCheckRun',
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
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='check_runs', to='planning.task')),
            ],
            options={
                'db_table': 'plan_check_runs',
                'indexes': [models.Index(condition=models.Q(('state__in', ('waiting', 'running'))), fields=['due_at'], name='plan_check_runs_open')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ('waiting', 'running'))), fields=('task',), name='plan_check_runs_one'), models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'running', 'passed', 'failed', 'dropped'])), name='plan_check_runs_state_known')],
            },
        ),
        migrations.CreateModel(
            name='PlanComment',
            fields=[
                ('comment_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('quote', models.TextField(blank=True)),
                ('text', models.TextField()),
                ('author', models.CharField(max_length=255)),
                ('written_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(null=True)),
                ('recipient', models.CharField(max_length=255, null=True)),
                ('outcome', models.CharField(choices=[('done', 'Done'), ('declined', 'Declined'), ('asked', 'Asked')], max_length=16, null=True)),
                ('words', models.TextField(blank=True)),
                ('answered_at', models.DateTimeField(null=True)),
                ('plan_number', models.PositiveBigIntegerField()),
                ('issue_number', models.PositiveBigIntegerField(null=True)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='coordination.workspace')),
            ],
            options={
                'db_table': 'plan_comments',
                'indexes': [models.Index(fields=['workspace', 'plan_number'], name='plan_comments_by_plan')],
                'constraints': [models.CheckConstraint(condition=models.Q(('comment_id', ''), _negated=True), name='plan_comments_comment_id_not_empty'), models.CheckConstraint(condition=models.Q(('text', ''), _negated=True), name='plan_comments_text_not_empty'), models.CheckConstraint(condition=models.Q(('author', ''), _negated=True), name='plan_comments_author_not_empty'), models.CheckConstraint(condition=models.Q(models.Q(('answered_at', None), ('outcome', None)), models.Q(('answered_at__isnull', False), ('outcome__in', ['done', 'declined', 'asked']), ('sent_at__isnull', False)), _connector='OR'), name='plan_comments_answered_once_sent')],
            },
        ),
    ]

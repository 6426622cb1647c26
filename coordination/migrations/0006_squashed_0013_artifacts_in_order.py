import django.db.models.deletion
import django.db.models.functions.comparison
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('coordination', '0006_tasks_go_to_planning'),
        ('coordination', '0007_safe_retries'),
        ('coordination', '0008_limits'),
        ('coordination', '0009_claims_of_the_log'),
        ('coordination', '0010_lent_keys'),
        ('coordination', '0011_acts_of_the_log'),
        ('coordination', '0012_workspaces_by_age'),
        ('coordination', '0013_artifacts_in_order'),
    ]

    dependencies = [
        ('coordination', '0005_events_of_no_workspace'),
    ]

    operations = [
        migrations.DeleteModel(
            name='Task',
        ),
        migrations.AddField(
            model_name='artifact',
            name='client_id',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddField(
            model_name='artifact',
            name='created_by',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.UniqueConstraint(models.F('workspace'), django.db.models.functions.comparison.Coalesce('created_by', models.Value('')), models.F('client_id'), condition=models.Q(('client_id__isnull', False)), name='artifacts_once'),
        ),
        migrations.CreateModel(
            name='AgentLimits',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('agent', 'Agent'), ('role', 'Role')], max_length=16)),
                ('name', models.CharField(max_length=255)),
                ('values', models.JSONField(default=dict)),
                ('allowed', models.JSONField(null=True)),
                ('refused', models.JSONField(null=True)),
                ('updated_at', models.DateTimeField()),
                ('updated_by', models.CharField(max_length=255)),
            ],
            options={
                'verbose_name_plural': 'agent limits',
                'db_table': 'agent_limits',
                'constraints': [models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='agent_limits_name_not_empty'), models.CheckConstraint(condition=models.Q(('scope__in', ['agent', 'role'])), name='agent_limits_scope_known'), models.UniqueConstraint(fields=('scope', 'name'), name='agent_limits_once')],
            },
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('type', 'handoff.claimed')), fields=['event_id', 'actor_agent_id'], name='events_of_claims'),
        ),
        migrations.CreateModel(
            name='LentKey',
            fields=[
                ('key_hash', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField()),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='lent_keys', to='coordination.agent')),
            ],
            options={
                'db_table': 'lent_keys',
                'constraints': [models.CheckConstraint(condition=models.Q(('key_hash', ''), _negated=True), name='lent_keys_key_hash_not_empty')],
            },
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('type', 'operator.acted')), fields=['event_id'], name='events_of_acts'),
        ),
        migrations.AddIndex(
            model_name='workspace',
            index=models.Index(fields=['created_at', 'workspace_id'], name='workspaces_by_age'),
        ),
        migrations.RemoveIndex(
            model_name='artifact',
            name='artifacts_by_age',
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(fields=['workspace', 'artifact_id'], name='artifacts_by_workspace'),
        ),
    ]

import django.db.models.deletion
import django.db.models.functions.comparison
from django.db import migrations, models

from nexus.core.database.keys import TextNumber


class Migration(migrations.Migration):

    replaces = [('coordination', '0020_events_by_age')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='RetentionPass',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
            options={
                'db_table': 'retention_passes',
            },
        ),
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('agent_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('role', models.CharField(max_length=255, null=True)),
                ('capabilities', models.JSONField(null=True)),
                ('metadata', models.JSONField(null=True)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('last_seen_at', models.DateTimeField(null=True)),
                ('deleted_at', models.DateTimeField(null=True)),
                ('toolsets', models.JSONField(null=True)),
                ('connected_at', models.DateTimeField(null=True)),
                ('tags', models.JSONField(null=True)),
            ],
            options={
                'db_table': 'agents',
                'indexes': [models.Index(fields=['created_at', 'agent_id'], name='agents_by_age')],
                'constraints': [models.CheckConstraint(condition=models.Q(('agent_id', ''), _negated=True), name='agents_agent_id_not_empty')],
            },
        ),
        migrations.CreateModel(
            name='Workspace',
            fields=[
                ('workspace_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('display_name', models.CharField(max_length=255, null=True)),
                ('root_realpath', models.TextField()),
                ('created_at', models.DateTimeField()),
                ('last_seen_at', models.DateTimeField()),
                ('number', TextNumber('workspace_id')),
            ],
            options={
                'db_table': 'workspaces',
                'constraints': [models.CheckConstraint(condition=models.Q(('workspace_id', ''), _negated=True), name='workspaces_workspace_id_not_empty'), models.CheckConstraint(condition=models.Q(('root_realpath', ''), _negated=True), name='workspaces_root_realpath_not_empty')],
                'indexes': [models.Index(fields=['created_at', 'workspace_id'], name='workspaces_by_age')],
            },
        ),
        migrations.CreateModel(
            name='AgentKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_hash', models.CharField(max_length=64, unique=True)),
                ('is_active', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField()),
                ('agent', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='key', to='coordination.agent')),
            ],
            options={
                'db_table': 'agent_keys',
                'constraints': [models.CheckConstraint(condition=models.Q(('key_hash', ''), _negated=True), name='agent_keys_key_hash_not_empty')],
            },
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('session_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('active', 'Active'), ('closed', 'Closed')], default='active', max_length=16)),
                ('metadata', models.JSONField(null=True)),
                ('secret_hash', models.CharField(max_length=64)),
                ('started_at', models.DateTimeField()),
                ('last_heartbeat_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(null=True)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='coordination.agent')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='coordination.workspace')),
            ],
            options={
                'db_table': 'sessions',
                'indexes': [models.Index(fields=['workspace', 'status', 'last_heartbeat_at'], name='sessions_by_presence'), models.Index(fields=['workspace', 'agent'], name='sessions_by_agent'), models.Index(fields=['agent', 'status'], name='sessions_of_agent'), models.Index(fields=['status', 'closed_at'], name='sessions_prunable')],
                'constraints': [models.CheckConstraint(condition=models.Q(('session_id', ''), _negated=True), name='sessions_session_id_not_empty'), models.CheckConstraint(condition=models.Q(('secret_hash', ''), _negated=True), name='sessions_secret_hash_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['active', 'closed'])), name='sessions_status_known'), models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', False), ('status', 'closed')), models.Q(('closed_at__isnull', True), ('status', 'active')), _connector='OR'), name='sessions_closed_at_iff_closed')],
            },
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('event_id', models.BigAutoField(primary_key=True, serialize=False)),
                ('stream', models.CharField(max_length=16)),
                ('type', models.CharField(max_length=64)),
                ('actor_agent_id', models.CharField(max_length=255, null=True)),
                ('payload', models.JSONField(default=dict)),
                ('visibility', models.CharField(choices=[('public', 'Public'), ('eligible', 'Eligible'), ('private', 'Private')], max_length=16, null=True)),
                ('target', models.JSONField(null=True)),
                ('task_id', models.CharField(max_length=255, null=True)),
                ('handoff_id', models.CharField(max_length=255, null=True)),
                ('created_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='events', to='coordination.workspace', to_field='number')),
                ('trace_id', models.CharField(max_length=255, null=True)),
            ],
            options={
                'db_table': 'events',
                'indexes': [models.Index(fields=['workspace', 'event_id'], name='events_by_workspace'), models.Index(fields=['workspace', 'stream', 'event_id'], name='events_by_stream'), models.Index(condition=models.Q(('handoff_id__isnull', False)), fields=['handoff_id'], name='events_of_handoff'), models.Index(condition=models.Q(('type', 'handoff.claimed')), fields=['event_id', 'actor_agent_id'], name='events_of_claims'), models.Index(condition=models.Q(('type', 'operator.acted')), fields=['event_id'], name='events_of_acts'), models.Index(condition=models.Q(('trace_id__isnull', False)), fields=['trace_id'], name='events_of_trace')],
                'constraints': [models.CheckConstraint(condition=models.Q(('type', ''), _negated=True), name='events_type_not_empty'), models.CheckConstraint(condition=models.Q(('visibility__in', ['public', 'eligible', 'private'])), name='events_visibility_known')],
            },
        ),
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('channel_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='channels', to='coordination.workspace')),
            ],
            options={
                'db_table': 'channels',
                'constraints': [models.CheckConstraint(condition=models.Q(('channel_id', ''), _negated=True), name='channels_channel_id_not_empty'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='channels_name_not_empty'), models.UniqueConstraint(fields=('workspace', 'name'), name='channels_name_once')],
            },
        ),
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('artifact_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('artifact_type', models.CharField(choices=[('file', 'File'), ('text', 'Text'), ('json', 'Json'), ('markdown', 'Markdown')], max_length=16)),
                ('name', models.CharField(max_length=255, null=True)),
                ('path', models.TextField(null=True)),
                ('content', models.TextField(null=True)),
                ('metadata', models.JSONField(null=True)),
                ('size_bytes', models.BigIntegerField()),
                ('content_type', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='artifacts', to='coordination.workspace')),
                ('client_id', models.CharField(max_length=255, null=True)),
                ('created_by', models.CharField(max_length=255, null=True)),
            ],
            options={
                'db_table': 'artifacts',
                'indexes': [models.Index(fields=['workspace', 'artifact_type'], name='artifacts_by_type'), models.Index(fields=['workspace', 'artifact_id'], name='artifacts_by_workspace')],
                'constraints': [models.CheckConstraint(condition=models.Q(('artifact_id', ''), _negated=True), name='artifacts_artifact_id_not_empty'), models.CheckConstraint(condition=models.Q(('artifact_type__in', ['file', 'text', 'json', 'markdown'])), name='artifacts_artifact_type_known'), models.CheckConstraint(condition=models.Q(('size_bytes__gte', 0)), name='artifacts_size_not_negative'), models.CheckConstraint(condition=models.Q(('path__isnull', False), ('content__isnull', False), _connector='OR'), name='artifacts_path_or_content'), models.UniqueConstraint(models.F('workspace'), django.db.models.functions.comparison.Coalesce('created_by', models.Value('')), models.F('client_id'), condition=models.Q(('client_id__isnull', False)), name='artifacts_once')],
            },
        ),
        migrations.CreateModel(
            name='StoredSetting',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('value', models.TextField()),
                ('updated_at', models.DateTimeField()),
                ('updated_by', models.CharField(max_length=255)),
            ],
            options={
                'db_table': 'stored_settings',
            },
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
        migrations.CreateModel(
            name='Tag',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=255)),
                ('value', models.CharField(blank=True, default='', max_length=255)),
                ('description', models.TextField(null=True)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'tags',
                'constraints': [models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='tags_key_not_empty'), models.UniqueConstraint(fields=('key', 'value'), name='tags_once')],
            },
        ),
    ]

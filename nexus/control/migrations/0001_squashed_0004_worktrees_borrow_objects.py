import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('control', '0001_initial'),
        ('control', '0002_what_long_lives_are_read_by'),
        ('control', '0003_one_turn_at_a_time_on_postgresql'),
        ('control', '0004_worktrees_borrow_objects'),
    ]

    initial = True

    dependencies = [
        ('coordination', '0009_claims_of_the_log'),
    ]

    operations = [
        migrations.CreateModel(
            name='PoolAgent',
            fields=[
                ('pool_agent_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('agent_id', models.CharField(max_length=63)),
                ('depth', models.PositiveSmallIntegerField()),
                ('preset', models.CharField(choices=[('worker', 'Worker'), ('sandboxed', 'Sandboxed'), ('trusted', 'Trusted')], max_length=16)),
                ('cwd', models.CharField(max_length=4096)),
                ('write_paths', models.JSONField(default=list)),
                ('disabled_tools', models.JSONField(default=list)),
                ('runner', models.CharField(max_length=255)),
                ('wake_on', models.JSONField(default=list)),
                ('wake_tokens', models.PositiveBigIntegerField(null=True)),
                ('held_why', models.CharField(choices=[('depth', 'Depth'), ('rate', 'Rate'), ('budget', 'Budget')], max_length=16, null=True)),
                ('held_at', models.DateTimeField(null=True)),
                ('resumed_at', models.DateTimeField(null=True)),
                ('is_temporary', models.BooleanField()),
                ('should_shutdown', models.BooleanField(default=False)),
                ('last_iterations', models.PositiveIntegerField(default=0)),
                ('halted', models.BooleanField(default=False)),
                ('entries_made', models.PositiveIntegerField(default=0)),
                ('entries_known', models.PositiveIntegerField(default=0)),
                ('created_by', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField()),
                ('last_action_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('parent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='children', to='control.poolagent')),
            ],
            options={
                'db_table': 'pool_agents',
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at'], name='pool_agents_ended'), models.Index(fields=['agent_id'], name='pool_agents_by_name')],
                'constraints': [models.CheckConstraint(condition=models.Q(('pool_agent_id', ''), _negated=True), name='pool_agents_pool_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('agent_id', ''), _negated=True), name='pool_agents_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('cwd', ''), _negated=True), name='pool_agents_cwd_not_empty'), models.CheckConstraint(condition=models.Q(('runner', ''), _negated=True), name='pool_agents_runner_not_empty'), models.CheckConstraint(condition=models.Q(('preset__in', ['worker', 'sandboxed', 'trusted'])), name='pool_agents_preset_known'), models.CheckConstraint(condition=models.Q(('held_why', None), ('held_why__in', ['depth', 'rate', 'budget']), _connector='OR'), name='pool_agents_held_why_known'), models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('agent_id',), name='pool_agents_living_once')],
            },
        ),
        migrations.CreateModel(
            name='PoolWorktree',
            fields=[
                ('worktree_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('path', models.CharField(max_length=4096)),
                ('git_dir', models.CharField(max_length=4096)),
                ('branch', models.CharField(max_length=255)),
                ('base', models.CharField(max_length=64)),
                ('origin', models.CharField(max_length=4096)),
                ('origin_git_dir', models.CharField(max_length=4096)),
                ('state', models.CharField(choices=[('open', 'Open'), ('kept', 'Kept'), ('discarded', 'Discarded')], default='open', max_length=16)),
                ('created_at', models.DateTimeField()),
                ('merged_at', models.DateTimeField(null=True)),
                ('agent', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='worktree', to='control.poolagent')),
                ('borrowed', models.JSONField(default=list)),
            ],
            options={
                'db_table': 'pool_worktrees',
                'constraints': [models.CheckConstraint(condition=models.Q(('worktree_id', ''), _negated=True), name='pool_worktrees_worktree_id_not_empty'), models.CheckConstraint(condition=models.Q(('path', ''), _negated=True), name='pool_worktrees_path_not_empty'), models.CheckConstraint(condition=models.Q(('git_dir', ''), _negated=True), name='pool_worktrees_git_dir_not_empty'), models.CheckConstraint(condition=models.Q(('branch', ''), _negated=True), name='pool_worktrees_branch_not_empty'), models.CheckConstraint(condition=models.Q(('base', ''), _negated=True), name='pool_worktrees_base_not_empty'), models.CheckConstraint(condition=models.Q(('origin', ''), _negated=True), name='pool_worktrees_origin_not_empty'), models.CheckConstraint(condition=models.Q(('state__in', ['open', 'kept', 'discarded'])), name='pool_worktrees_state_known')],
            },
        ),
        migrations.CreateModel(
            name='Turn',
            fields=[
                ('turn_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('request_id', models.CharField(max_length=255)),
                ('content', models.TextField()),
                ('source', models.CharField(max_length=255)),
                ('source_agent_id', models.CharField(max_length=255, null=True)),
                ('depth', models.PositiveIntegerField(default=0)),
                ('status', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('cancelled', 'Cancelled'), ('failed', 'Failed'), ('interrupted', 'Interrupted')], max_length=16)),
                ('queued_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('cancel_requested_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('answer', models.TextField(null=True)),
                ('why', models.TextField(null=True)),
                ('iterations', models.PositiveIntegerField(default=0)),
                ('halted', models.BooleanField(default=False)),
                ('input_tokens', models.PositiveBigIntegerField(default=0)),
                ('output_tokens', models.PositiveBigIntegerField(default=0)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='turns', to='control.poolagent')),
            ],
            options={
                'db_table': 'pool_turns',
                'indexes': [models.Index(condition=models.Q(('ended_at', None)), fields=['agent', 'turn_id'], name='pool_turns_open'), models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at', 'started_at', 'agent', 'status'], name='pool_turns_when'), models.Index(fields=['agent', 'ended_at', 'depth', 'input_tokens', 'output_tokens'], name='pool_turns_spent')],
                'constraints': [models.CheckConstraint(condition=models.Q(('turn_id', ''), _negated=True), name='pool_turns_turn_id_not_empty'), models.CheckConstraint(condition=models.Q(('request_id', ''), _negated=True), name='pool_turns_request_id_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['queued', 'running', 'done', 'cancelled', 'failed', 'interrupted'])), name='pool_turns_status_known'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('status', 'queued')), models.Q(('ended_at', None), ('started_at__isnull', False), ('status', 'running')), models.Q(models.Q(('status__in', ('queued', 'running')), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='pool_turns_times_fit'), models.UniqueConstraint(fields=('agent', 'request_id'), name='pool_turns_named_once'), models.UniqueConstraint(condition=models.Q(('status', 'running')), fields=('agent',), name='pool_turns_one_at_a_time')],
            },
        ),
        migrations.CreateModel(
            name='Question',
            fields=[
                ('question_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('agent_id', models.CharField(max_length=255)),
                ('client_id', models.CharField(max_length=255, null=True)),
                ('kind', models.CharField(choices=[('permission', 'Permission'), ('question', 'Question')], max_length=16)),
                ('title', models.CharField(max_length=255)),
                ('detail', models.TextField(blank=True)),
                ('subject', models.TextField(blank=True)),
                ('status', models.CharField(choices=[('asked', 'Asked'), ('allowed', 'Allowed'), ('refused', 'Refused'), ('answered', 'Answered'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn')], default='asked', max_length=16)),
                ('always', models.BooleanField(default=False)),
                ('words', models.TextField(null=True)),
                ('answered_by', models.CharField(max_length=255, null=True)),
                ('asked_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('pool_agent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='questions', to='control.poolagent')),
                ('turn', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='questions', to='control.turn')),
            ],
            options={
                'db_table': 'pool_questions',
                'indexes': [models.Index(condition=models.Q(('status', 'asked')), fields=['expires_at'], name='pool_questions_open'), models.Index(condition=models.Q(('always', True)), fields=['agent_id'], name='pool_questions_always'), models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at'], name='pool_questions_ended')],
                'constraints': [models.CheckConstraint(condition=models.Q(('question_id', ''), _negated=True), name='pool_questions_question_id_not_empty'), models.CheckConstraint(condition=models.Q(('agent_id', ''), _negated=True), name='pool_questions_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('title', ''), _negated=True), name='pool_questions_title_not_empty'), models.CheckConstraint(condition=models.Q(('kind__in', ['permission', 'question'])), name='pool_questions_kind_known'), models.CheckConstraint(condition=models.Q(('status__in', ['asked', 'allowed', 'refused', 'answered', 'expired', 'withdrawn'])), name='pool_questions_status_known'), models.UniqueConstraint(condition=models.Q(('pool_agent__isnull', False)), fields=('pool_agent', 'client_id'), name='pool_questions_once_in_pool'), models.UniqueConstraint(condition=models.Q(('pool_agent', None)), fields=('agent_id', 'client_id'), name='pool_questions_once_outside')],
            },
        ),
        migrations.CreateModel(
            name='Entry',
            fields=[
                ('entry_id', models.BigAutoField(primary_key=True, serialize=False)),
                ('position', models.PositiveIntegerField()),
                ('role', models.CharField(choices=[('system', 'System'), ('user', 'User'), ('assistant', 'Assistant'), ('tool', 'Tool')], max_length=16)),
                ('content', models.TextField(blank=True)),
                ('tool_call_id', models.CharField(max_length=255, null=True)),
                ('meta', models.JSONField(null=True)),
                ('tokens', models.PositiveIntegerField()),
                ('created_at', models.DateTimeField()),
                ('compacted_at', models.DateTimeField(null=True)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='control.poolagent')),
                ('turn', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='control.turn')),
            ],
            options={
                'db_table': 'pool_entries',
                'indexes': [models.Index(fields=['agent', 'compacted_at', 'position', 'role', 'tokens'], name='pool_entries_known')],
                'constraints': [models.CheckConstraint(condition=models.Q(('role__in', ['system', 'user', 'assistant', 'tool'])), name='pool_entries_role_known'), models.UniqueConstraint(fields=('agent', 'position'), name='pool_entries_in_order')],
            },
        ),
        migrations.CreateModel(
            name='Wake',
            fields=[
                ('wake_id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=16)),
                ('item', models.CharField(max_length=255)),
                ('sender', models.CharField(max_length=255, null=True)),
                ('turn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='wakes', to='control.turn')),
            ],
            options={
                'db_table': 'pool_wakes',
                'indexes': [models.Index(fields=['kind', 'item'], name='pool_wakes_of_item')],
                'constraints': [models.CheckConstraint(condition=models.Q(('kind', ''), _negated=True), name='pool_wakes_kind_not_empty'), models.CheckConstraint(condition=models.Q(('item', ''), _negated=True), name='pool_wakes_item_not_empty')],
            },
        ),
    ]

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('forges', '0005_push_failures')]

    initial = True

    dependencies = [
        ('coordination', '0001_squashed_0020_events_by_age'),
        ('handoffs', '0001_squashed_0015_released_from'),
    ]

    operations = [
        migrations.CreateModel(
            name='Forge',
            fields=[
                ('forge_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('github', 'Github'), ('gitlab', 'Gitlab'), ('git', 'git remote')], max_length=16)),
                ('url', models.TextField()),
                ('repository', models.CharField(max_length=255)),
                ('token', models.TextField(blank=True)),
                ('secret', models.CharField(max_length=128)),
                ('label', models.CharField(max_length=255, null=True)),
                ('assignee', models.CharField(max_length=255, null=True)),
                ('target', models.JSONField()),
                ('base', models.CharField(max_length=255, null=True)),
                ('operator', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField()),
                ('since', models.DateTimeField()),
                ('etag', models.TextField(blank=True)),
                ('poll_at', models.DateTimeField()),
                ('polled_at', models.DateTimeField(null=True)),
                ('failures', models.PositiveIntegerField(default=0)),
                ('next_attempt_at', models.DateTimeField(null=True)),
                ('last_error', models.CharField(max_length=255, null=True)),
                ('refused_at', models.DateTimeField(null=True)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='forges', to='coordination.workspace')),
            ],
            options={
                'db_table': 'forges',
                'constraints': [models.CheckConstraint(condition=models.Q(('forge_id', ''), _negated=True), name='forges_forge_id_not_empty'), models.CheckConstraint(condition=models.Q(('url', ''), _negated=True), name='forges_url_not_empty'), models.CheckConstraint(condition=models.Q(('repository', ''), _negated=True), name='forges_repository_not_empty'), models.CheckConstraint(condition=models.Q(('secret', ''), _negated=True), name='forges_secret_not_empty'), models.CheckConstraint(condition=models.Q(('operator', ''), _negated=True), name='forges_operator_not_empty'), models.UniqueConstraint(fields=('url', 'repository'), name='forges_once'), models.CheckConstraint(condition=models.Q(('kind__in', ['github', 'gitlab', 'git'])), name='forges_kind_known')],
            },
        ),
        migrations.CreateModel(
            name='ForgeDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('delivery', models.CharField(max_length=255)),
                ('event', models.CharField(max_length=255)),
                ('received_at', models.DateTimeField(db_index=True)),
                ('forge', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='forges.forge')),
            ],
            options={
                'verbose_name_plural': 'forge deliveries',
                'db_table': 'forge_deliveries',
                'constraints': [models.CheckConstraint(condition=models.Q(('delivery', ''), _negated=True), name='forge_deliveries_delivery_not_empty'), models.UniqueConstraint(fields=('forge', 'delivery'), name='forge_deliveries_once')],
            },
        ),
        migrations.CreateModel(
            name='ForgeIssue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.BigIntegerField()),
                ('title', models.TextField()),
                ('url', models.TextField()),
                ('updated_at', models.DateTimeField()),
                ('comment_id', models.BigIntegerField(null=True)),
                ('comment', models.TextField(blank=True)),
                ('comment_lost', models.BooleanField(default=False)),
                ('branch', models.CharField(max_length=255, null=True)),
                ('published_at', models.DateTimeField(null=True)),
                ('pull', models.BigIntegerField(null=True)),
                ('pull_url', models.TextField(blank=True)),
                ('pull_state', models.CharField(blank=True, max_length=16)),
                ('pull_updated_at', models.DateTimeField(null=True)),
                ('head', models.CharField(blank=True, max_length=255)),
                ('checks', models.CharField(blank=True, max_length=16)),
                ('known', models.JSONField(default=list)),
                ('comments_since', models.DateTimeField(null=True)),
                ('seen_at', models.DateTimeField(null=True)),
                ('due_at', models.DateTimeField(null=True)),
                ('last_error', models.CharField(max_length=255, null=True)),
                ('forge', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='issues', to='forges.forge')),
                ('handoff', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='forge_issue', to='handoffs.handoff')),
                ('ended', models.CharField(blank=True, max_length=16)),
                ('leased_until', models.DateTimeField(null=True)),
                ('push_failures', models.PositiveIntegerField(null=True)),
            ],
            options={
                'db_table': 'forge_issues',
                'constraints': [models.UniqueConstraint(fields=('forge', 'number'), name='forge_issues_once')],
            },
        ),
    ]

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('hooks', '0004_sent_keys')]

    initial = True

    dependencies = [
        ('coordination', '0001_squashed_0020_events_by_age'),
    ]

    operations = [
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('webhook_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('url', models.TextField()),
                ('secret', models.CharField(max_length=128)),
                ('agent_id', models.CharField(max_length=255, null=True)),
                ('types', models.JSONField(null=True)),
                ('allow_private', models.BooleanField(default=False)),
                ('cursor', models.BigIntegerField()),
                ('created_at', models.DateTimeField()),
                ('last_delivered_at', models.DateTimeField(null=True)),
                ('workspace', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='webhooks', to='coordination.workspace')),
                ('failures', models.PositiveIntegerField(default=0)),
                ('next_attempt_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'webhooks',
                'constraints': [models.CheckConstraint(condition=models.Q(('webhook_id', ''), _negated=True), name='webhooks_webhook_id_not_empty'), models.CheckConstraint(condition=models.Q(('url', ''), _negated=True), name='webhooks_url_not_empty'), models.CheckConstraint(condition=models.Q(('secret', ''), _negated=True), name='webhooks_secret_not_empty')],
            },
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('delivery_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('event_id', models.BigIntegerField()),
                ('body', models.TextField()),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('dead', 'Dead')], default='pending', max_length=16)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('next_attempt_at', models.DateTimeField()),
                ('last_error', models.CharField(max_length=255, null=True)),
                ('created_at', models.DateTimeField()),
                ('webhook', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='hooks.webhook')),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
                'db_table': 'webhook_deliveries',
                'indexes': [models.Index(fields=['status', 'next_attempt_at'], name='webhook_deliveries_due')],
                'constraints': [models.CheckConstraint(condition=models.Q(('delivery_id', ''), _negated=True), name='webhook_deliveries_delivery_id_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'dead'])), name='webhook_deliveries_status_known'), models.UniqueConstraint(fields=('webhook', 'event_id'), name='webhook_deliveries_once'), models.CheckConstraint(condition=models.Q(('attempts__gte', 0)), name='webhook_deliveries_attempts_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='NoticeAddress',
            fields=[
                ('notice_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('url', models.TextField(blank=True)),
                ('subscription', models.JSONField(null=True)),
                ('name', models.CharField(max_length=255)),
                ('kinds', models.JSONField(null=True)),
                ('quiet_from', models.TimeField(null=True)),
                ('quiet_until', models.TimeField(null=True)),
                ('timezone', models.CharField(max_length=64, null=True)),
                ('with_text', models.BooleanField(default=False)),
                ('with_answers', models.BooleanField(default=False)),
                ('allow_private', models.BooleanField(default=False)),
                ('operator', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField()),
                ('test_requested', models.BooleanField(default=False)),
                ('claims', models.PositiveBigIntegerField(default=0)),
                ('failures', models.PositiveIntegerField(default=0)),
                ('next_attempt_at', models.DateTimeField(null=True)),
                ('last_sent_at', models.DateTimeField(null=True)),
                ('last_error', models.CharField(max_length=255, null=True)),
                ('workspace', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notice_addresses', to='coordination.workspace')),
                ('sent_keys', models.JSONField(default=list)),
            ],
            options={
                'verbose_name_plural': 'notice addresses',
                'db_table': 'notice_addresses',
                'constraints': [models.CheckConstraint(condition=models.Q(('notice_id', ''), _negated=True), name='notice_addresses_notice_id_not_empty'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='notice_addresses_name_not_empty'), models.CheckConstraint(condition=models.Q(('operator', ''), _negated=True), name='notice_addresses_operator_not_empty'), models.CheckConstraint(condition=models.Q(models.Q(('quiet_from', None), ('quiet_until', None)), models.Q(('quiet_from__isnull', False), ('quiet_until__isnull', False)), _connector='OR'), name='notice_addresses_quiet_hours_whole')],
            },
        ),
    ]

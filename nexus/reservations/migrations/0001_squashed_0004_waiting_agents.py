import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('files', '0004_waiting_agents')]

    initial = True

    dependencies = [
        ('coordination', '0001_squashed_0020_events_by_age'),
    ]

    operations = [
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('reservation_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('agent_id', models.CharField(max_length=255)),
                ('pattern', models.CharField(max_length=1024)),
                ('place', models.CharField(blank=True, max_length=64)),
                ('extension', models.CharField(blank=True, max_length=16)),
                ('exclusive', models.BooleanField()),
                ('reason', models.TextField(null=True)),
                ('handoff_id', models.CharField(max_length=255, null=True)),
                ('task_id', models.BigIntegerField(null=True)),
                ('client_id', models.CharField(max_length=255, null=True)),
                ('item', models.PositiveSmallIntegerField()),
                ('asked_by', models.JSONField(default=list)),
                ('seconds', models.PositiveIntegerField()),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('released_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(choices=[('released', 'Released'), ('expired', 'Expired'), ('settled', 'Settled')], max_length=16, null=True)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='reservations', to='coordination.workspace')),
                ('claim_epoch', models.BigIntegerField(db_default=0, default=0)),
                ('refused', models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                ('waits', models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
            ],
            options={
                'db_table': 'file_reservations',
                'indexes': [models.Index(condition=models.Q(('released_at', None)), fields=['workspace', 'place'], name='files_held'), models.Index(condition=models.Q(('released_at', None)), fields=['workspace', 'extension', 'place'], name='files_by_extension'), models.Index(condition=models.Q(('released_at', None)), fields=['expires_at'], name='files_by_lease'), models.Index(condition=models.Q(('released_at', None)), fields=['agent_id', 'workspace'], name='files_of_agent'), models.Index(condition=models.Q(('handoff_id__isnull', False), ('released_at', None)), fields=['handoff_id'], name='files_of_handoff'), models.Index(condition=models.Q(('released_at__isnull', False)), fields=['workspace', 'place', 'released_at'], name='files_had'), models.Index(condition=models.Q(('released_at__isnull', False)), fields=['workspace', 'released_at'], name='files_had_last'), models.Index(condition=models.Q(('released_at__isnull', False)), fields=['released_at'], name='files_ended')],
                'constraints': [models.CheckConstraint(condition=models.Q(('reservation_id', ''), _negated=True), name='file_reservations_reservation_id_not_empty'), models.CheckConstraint(condition=models.Q(('agent_id', ''), _negated=True), name='file_reservations_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('pattern', ''), _negated=True), name='file_reservations_pattern_not_empty'), models.CheckConstraint(condition=models.Q(('client_id', ''), _negated=True), name='file_reservations_client_id_not_empty'), models.CheckConstraint(condition=models.Q(('outcome__in', ['released', 'expired', 'settled'])), name='file_reservations_outcome_known'), models.UniqueConstraint(condition=models.Q(('client_id__isnull', False)), fields=('agent_id', 'client_id', 'item'), name='file_reservations_made_once'), models.CheckConstraint(condition=models.Q(models.Q(('outcome', None), ('released_at', None)), models.Q(('outcome__isnull', False), ('released_at__isnull', False)), _connector='OR'), name='file_reservations_ended_somehow')],
            },
        ),
    ]

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('handoffs', '0001_initial'),
        ('handoffs', '0002_tasks_of_planning'),
    ]

    initial = True

    dependencies = [
        ('coordination', '0001_initial'),
    ]

    run_before = [
        ('coordination', '0006_tasks_go_to_planning'),
    ]

    operations = [
        migrations.CreateModel(
            name='Handoff',
            fields=[
                ('handoff_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('from_agent_id', models.CharField(max_length=255)),
                ('target', models.JSONField()),
                ('visibility', models.CharField(choices=[('public', 'Public'), ('eligible', 'Eligible'), ('private', 'Private')], max_length=16)),
                ('status', models.CharField(choices=[('OPEN', 'Open'), ('CLAIMED', 'Claimed'), ('COMPLETED', 'Completed'), ('REJECTED', 'Rejected'), ('CANCELLED', 'Cancelled')], default='OPEN', max_length=16)),
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
            ],
            options={
                'db_table': 'handoffs',
                'indexes': [models.Index(fields=['workspace', 'status', 'created_event_id'], name='handoffs_by_status'), models.Index(fields=['workspace', 'updated_at'], name='handoffs_by_change'), models.Index(condition=models.Q(('status', 'CLAIMED')), fields=['workspace', 'lease_expires_at'], name='handoffs_by_lease'), models.Index(condition=models.Q(('task_key__isnull', False)), fields=['task_key'], name='handoffs_by_task')],
                'constraints': [models.CheckConstraint(condition=models.Q(('handoff_id', ''), _negated=True), name='handoffs_handoff_id_not_empty'), models.CheckConstraint(condition=models.Q(('from_agent_id', ''), _negated=True), name='handoffs_from_agent_id_not_empty'), models.CheckConstraint(condition=models.Q(('status__in', ['OPEN', 'CLAIMED', 'COMPLETED', 'REJECTED', 'CANCELLED'])), name='handoffs_status_known'), models.CheckConstraint(condition=models.Q(('visibility__in', ['public', 'eligible', 'private'])), name='handoffs_visibility_known'), models.CheckConstraint(condition=models.Q(models.Q(('claimed_by__isnull', False), ('lease_expires_at__isnull', False), ('status', 'CLAIMED')), models.Q(('claimed_by__isnull', True), ('lease_expires_at__isnull', True), ('status', 'OPEN')), models.Q(('lease_expires_at__isnull', True), ('status__in', ['COMPLETED', 'REJECTED', 'CANCELLED'])), _connector='OR'), name='handoffs_claim_iff_claimed')],
            },
        ),
    ]

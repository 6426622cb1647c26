from django.db import migrations, models

# What waits is sent from the log, and what was given up is counted.
WAITING = """
    UPDATE webhooks SET cursor = (
        SELECT min(event_id) - 1 FROM webhook_deliveries d WHERE d.webhook_id = webhooks.webhook_id AND status = 'pending'
    )
    WHERE webhook_id IN (SELECT webhook_id FROM webhook_deliveries WHERE status = 'pending')
"""
DEAD = """
    UPDATE webhooks SET given_up = (
        SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = webhooks.webhook_id AND status = 'dead'
    )
"""


def move_to_the_log(apps, schema_editor):
    if "webhook_deliveries" in schema_editor.connection.introspection.table_names():  # not in a fresh store
        schema_editor.execute(WAITING)
        schema_editor.execute(DEAD)


class Migration(migrations.Migration):

    dependencies = [
        ('hooks', '0001_squashed_0004_sent_keys'),
    ]

    operations = [
        migrations.AddField(
            model_name='webhook',
            name='last_error',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddField(
            model_name='webhook',
            name='given_up',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.RunPython(move_to_the_log, migrations.RunPython.noop),
        migrations.DeleteModel(
            name='WebhookDelivery',
        ),
    ]

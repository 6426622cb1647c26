from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('inbox', '0003_safe_retries'),
        ('inbox', '0004_pages_of_mail'),
        ('inbox', '0005_waiting_by_age'),
        ('inbox', '0006_lists_of_mail'),
        ('inbox', '0007_mail_of_a_sender'),
    ]

    dependencies = [
        ('coordination', '0013_artifacts_in_order'),
        ('inbox', '0002_search'),
    ]

    operations = [
        migrations.AddField(
            model_name='message',
            name='client_id',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddConstraint(
            model_name='message',
            constraint=models.UniqueConstraint(condition=models.Q(('client_id__isnull', False)), fields=('from_agent_id', 'client_id'), name='messages_once'),
        ),
        migrations.RemoveIndex(
            model_name='message',
            name='messages_by_workspace',
        ),
        migrations.RemoveIndex(
            model_name='message',
            name='messages_by_channel',
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(fields=['workspace', 'message_id'], name='messages_by_workspace'),
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(condition=models.Q(('channel__isnull', False)), fields=['channel', 'message_id'], name='messages_by_channel'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status', 'unread'), ('status', 'parked'), _connector='OR'), fields=['status', 'created_at'], name='deliveries_waiting'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['recipient', 'delivery_id'], name='deliveries_to'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['recipient', 'message'], name='deliveries_to_by_message'),
        ),
        migrations.RemoveIndex(
            model_name='message',
            name='messages_by_sender',
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(fields=['from_agent_id', 'message_id'], name='messages_of_sender'),
        ),
    ]

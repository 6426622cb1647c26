from django.db import migrations


class Migration(migrations.Migration):
    """Tasks are planning's; nothing ever wrote this table."""

    dependencies = [("coordination", "0005_events_of_no_workspace")]

    operations = [migrations.DeleteModel(name="Task")]

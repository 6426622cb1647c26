from django.db import migrations

from handoffs.models import title_of

AT_ONCE = 1_000


def name(apps, schema_editor):
    """Give the handoffs that were there a title of what they say."""
    handoffs = apps.get_model("handoffs", "Handoff").objects
    batch = []
    for handoff in handoffs.only("pk", "payload", "target").iterator(chunk_size=AT_ONCE):
        handoff.title = title_of(handoff.payload, handoff.target)
        batch.append(handoff)
        if len(batch) == AT_ONCE:
            handoffs.bulk_update(batch, ["title"])
            batch.clear()
    handoffs.bulk_update(batch, ["title"])


class Migration(migrations.Migration):
    """A step of its own: PostgreSQL changes no table in the transaction that changed its rows."""

    dependencies = [("handoffs", "0003_lasting_work")]

    operations = [migrations.RunPython(name, migrations.RunPython.noop)]

"""ORM functions that each database spells differently: times as numbers, to be summed up in the database."""

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField, FloatField, Func


class Seconds(Func):
    """A time as seconds since 1970, to the millisecond."""

    output_field = FloatField()

    def get_db_converters(self, connection: Any) -> list[Any]:
        return []  # either driver gives a float: to make one of it again takes longer than to read it

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="((julianday(%(expressions)s) - 2440587.5) * 86400.0)")

    def as_postgresql(self, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="EXTRACT(EPOCH FROM %(expressions)s)::float8")


class Lasted(Func):
    """The number of seconds between two times; negative if they are the other way round."""

    template, arg_joiner, output_field = "(%(expressions)s)", " - ", FloatField()

    def __init__(self, start: Any, end: Any) -> None:
        super().__init__(Seconds(end), Seconds(start))

    def get_db_converters(self, connection: Any) -> list[Any]:
        return []  # as above: a difference by the ORM's own minus has them


class IntegerPart(Func):
    """The integer part of a number that is not negative."""

    output_field = BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="CAST(%(expressions)s AS INTEGER)")

    def as_postgresql(self, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="FLOOR(%(expressions)s)::bigint")

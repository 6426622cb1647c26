"""The parameters of this app's operations, with the outbox in the forms that clients send it in."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from nexus.core.operations.parameters import MAX_INTEGER, Id
from nexus.core.operations.validation import MAX_NODES, unstorable
from nexus.topics import naming

TopicId = Id
TopicName = Annotated[str, Field(max_length=naming.MAX_TOPIC_NAME), AfterValidator(naming.printable)]
AgentName = Annotated[str, Field(max_length=naming.MAX_AGENT_NAME), AfterValidator(naming.printable)]
Metadata = Annotated[dict[str, Any], AfterValidator(naming.metadata)]
Content = Annotated[str, AfterValidator(naming.content)]
Text = Annotated[str, AfterValidator(naming.fitting)]
Seq = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1)]


class OutgoingMessage(BaseModel):
    """A message that is to be sent."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    content_markdown: Content
    message_type: Annotated[str, Field(max_length=naming.MAX_MESSAGE_TYPE), AfterValidator(naming.printable)] = (
        "message"
    )
    reply_to: Id | None = None
    metadata: Metadata | None = None
    client_message_id: (
        Annotated[str, Field(max_length=naming.MAX_CLIENT_MESSAGE_ID), AfterValidator(naming.printable)] | None
    ) = None


def _as_list(given: Any) -> Any:
    """Return an outbox as a list: some clients send a single message, or either as JSON text."""
    if isinstance(given, str):
        try:
            given = from_json(given, allow_inf_nan=False)
        except (ValueError, TypeError):  # a TypeError is reported for text that UTF-8 cannot hold
            raise ValueError("must be a list of messages; this text is no JSON") from None
        if problem := unstorable({"outbox": given}, lambda name: MAX_NODES):
            raise ValueError(problem.message.removeprefix("'outbox' ").removesuffix("."))
    return [given] if isinstance(given, dict) else given


Outbox = Annotated[
    list[OutgoingMessage],
    Field(max_length=naming.MAX_OUTBOX),
    BeforeValidator(_as_list),
]

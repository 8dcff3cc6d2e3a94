"""Schemas of conversations and their items."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.schemas.common import Body, Metadata

MOST_ITEMS = 20
"""Items of one request, as at OpenAI."""
_ID = "conv_01kajf7q5rf0h8zq2m4w6y8a0b"
_ITEM_ID = "msg_01kajf7q5rf0h8zq2m4w6y8a0b"
_CREATED = 1_763_629_200
_SAID: dict[str, Any] = {"type": "message", "role": "user", "content": "What is a millrace?"}
_ITEM: dict[str, Any] = {
    "id": _ITEM_ID,
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "What is a millrace?"}],
    "status": "completed",
}


class ConversationRequest(Body):
    """New conversation."""

    items: list[dict[str, Any]] | None = Field(
        default=None, max_length=MOST_ITEMS, description="as of `input` of POST /v1/responses"
    )
    metadata: Metadata | None = None


class ConversationUpdate(Body):
    """Change of a conversation."""

    metadata: Metadata | None = Field(description="in place of what it has", examples=[{}])


class ConversationItemsRequest(Body):
    """Items for the end of a conversation."""

    items: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MOST_ITEMS,
        description="as of `input` of POST /v1/responses",
        examples=[[_SAID]],
    )


class Conversation(BaseModel):
    """Conversation."""

    id: str = Field(examples=[_ID])
    object: Literal["conversation"]
    created_at: int = Field(examples=[_CREATED])
    metadata: dict[str, str]


class ConversationDeleted(BaseModel):
    """Deleted conversation."""

    id: str = Field(examples=[_ID])
    object: Literal["conversation.deleted"]
    deleted: bool = Field(examples=[True])


class ConversationItem(BaseModel):
    """Message, `function_call` or `function_call_output`."""

    id: str = Field(examples=[_ITEM_ID])
    type: str = Field(examples=["message"])
    status: str = Field(examples=["completed"])


class ConversationItemList(BaseModel):
    """Page of a conversation's items."""

    object: Literal["list"]
    data: list[dict[str, Any]] = Field(examples=[[_ITEM]])
    first_id: str
    last_id: str
    has_more: bool

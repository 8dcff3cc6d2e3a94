"""Schemas of webhooks: deliveries, endpoints and signing secrets."""

from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.common import NO_NUL, Body, MessageId, Timestamp


class Webhook(Body):
    """Webhook of a job."""

    url: str = Field(
        max_length=2000,
        description="https://…, called when the job has ended",
        examples=["https://globex.example/millrace"],
    )


class Delivery(BaseModel):
    """Delivery of one webhook event."""

    id: MessageId = Field(description="`webhook-id` of all its tries")
    type: str = Field(examples=["job.completed"])
    generation: int | None = Field(description="of the job; null: an event of no job", examples=[1])
    url: str = Field(examples=["https://globex.example/millrace"])
    state: Literal["pending", "delivered", "failed", "disabled"] = Field(examples=["delivered"])
    tries: int = Field(examples=[1])
    created_at: Timestamp
    delivered_at: str | None = Field(examples=["2026-11-20T09:00:05.480000Z"])
    next_try_at: str | None
    last_status: int | None = Field(examples=[204])
    last_error: str | None


class DeliveryList(BaseModel):
    """Deliveries of a job."""

    data: list[Delivery]


class Endpoint(Body):
    """URL that gets events of no job: `usage.threshold`."""

    url: str | None = Field(
        max_length=2000,
        pattern=NO_NUL,
        description="null: none",
        examples=["https://globex.example/usage"],
    )


class EndpointState(Endpoint):
    """Endpoint and its latest deliveries."""

    deliveries: list[Delivery] = Field(description="latest deliveries, to this and to earlier URLs")


class SigningSecret(BaseModel):
    """Secret that signs webhooks."""

    secret: str | None = Field(description="`whsec_…`, shown once, then null", examples=["whsec_…"])
    created_at: Timestamp
    previous_signs_until: str | None = Field(description="end of validity of the previous secret")

"""Schemas of webhooks: deliveries, endpoints and signing secrets."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.common import NO_NUL


class Webhook(BaseModel):
    """Webhook of a job."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=2000, description="https://…, called when the job has ended")


class Delivery(BaseModel):
    """Delivery of one webhook event."""

    id: str = Field(description="`webhook-id` of all its tries")
    type: str
    generation: int | None = Field(description="of the job; null: an event of no job")
    url: str
    state: Literal["pending", "delivered", "failed", "disabled"]
    tries: int
    created_at: str
    delivered_at: str | None
    next_try_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryList(BaseModel):
    """Deliveries of a job."""

    data: list[Delivery]


class Endpoint(BaseModel):
    """URL that gets events of no job: `usage.threshold`."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(max_length=2000, pattern=NO_NUL, description="null: none")


class EndpointState(Endpoint):
    """Endpoint and its latest deliveries."""

    deliveries: list[Delivery] = Field(description="latest deliveries, to this and to earlier URLs")


class SigningSecret(BaseModel):
    """Secret that signs webhooks."""

    secret: str | None = Field(description="`whsec_…`, shown once, then null")
    created_at: str
    previous_signs_until: str | None = Field(description="end of validity of the previous secret")

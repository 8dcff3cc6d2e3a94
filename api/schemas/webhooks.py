"""Schemas of webhooks: deliveries, endpoints and signing secrets."""

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from api.schemas.common import NO_NUL


class Webhook(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=2000, description="https://…, told when the job has ended")


class Delivery(BaseModel):
    """A webhook of one end of a job. id: the `webhook-id` of all its tries."""

    id: str
    type: str
    generation: int | None = Field(description="of the job; null: it is of no job")
    url: str
    state: Literal["pending", "delivered", "failed", "disabled"]
    tries: int
    created_at: str
    delivered_at: str | None
    next_try_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryList(BaseModel):
    data: list[Delivery]


class Endpoint(BaseModel):
    """Where you are told what is of no job: `usage.threshold`."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(max_length=2000, pattern=NO_NUL, description="null: nowhere")


class EndpointState(Endpoint):
    deliveries: list[Delivery] = Field(description="the latest, of this and of earlier URLs")


class SigningSecret(BaseModel):
    """What webhooks are signed with."""

    secret: str | None = Field(description="`whsec_…`, shown once; null ever after")
    created_at: str
    previous_signs_until: str | None = Field(description="while a rotation lasts")

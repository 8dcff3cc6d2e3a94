"""Schemas of scores of pairs of texts."""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, Strict

from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.schemas.common import Body, whole

MOST_PAIRS = 1000  #: Pairs of one request.

_QUERY = "What is a millrace?"
_DOCUMENTS = ["A channel that leads water to a mill.", "A race of horses."]
_ID = "01kajf7q5rf0h8zq2m4w6y8a0b"
_Model = Annotated[str, Field(examples=["reranker"])]
# Bounds stand first, or /openapi.json lacks them.
_Timeout = Annotated[int, Field(ge=1, le=MAX_CALL_TIMEOUT_MS), Strict(), BeforeValidator(whole)]
_Count = Annotated[int, Field(ge=0), Strict(), BeforeValidator(whole)]
_Texts = str | Annotated[list[str], Field(min_length=1, max_length=MOST_PAIRS)]


class PairsRequest(Body):
    """Fields that both requests have."""

    model: _Model = Field(
        min_length=1,
        max_length=200,
        description="of the task `reranking`: name@version; or a name: its newest version that a "
        "worker is ready for",
    )
    user: str | None = Field(default=None, description="for routes that keep users at a version")
    timeout_ms: _Timeout | None = Field(
        default=None,
        description="deadline of the response; default: 10,000, plus 50 per further pair",
    )


class DocumentText(Body):
    """Document as an object."""

    text: str = Field(examples=_DOCUMENTS[:1])


class RerankRequest(PairsRequest):
    """The body of POST /v1/rerank."""

    query: str = Field(examples=[_QUERY])
    documents: list[str | DocumentText] = Field(
        min_length=1, max_length=MOST_PAIRS, examples=[_DOCUMENTS]
    )
    top_n: _Count | None = Field(
        default=None, description="results, the best ones; null and 0: all", examples=[1]
    )
    return_documents: bool | None = Field(
        default=None, description="false: results have no `document`"
    )

    @property
    def texts(self) -> list[str]:
        """Its documents."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


class ScoreRequest(PairsRequest):
    """The body of POST /v1/score."""

    text_1: _Texts = Field(
        validation_alias=AliasChoices("text_1", "queries"),
        description="a text, which goes with each of `text_2`, or as many as there; also `queries`",
        examples=[_QUERY],
    )
    text_2: _Texts = Field(
        validation_alias=AliasChoices("text_2", "documents"),
        description="a text, or a list; also `documents`",
        examples=[_DOCUMENTS],
    )


class PairsUsage(BaseModel):
    """Tokens of all pairs; 0 where the model counts none, as those of `huggingface`."""

    prompt_tokens: int = Field(examples=[0])
    total_tokens: int = Field(examples=[0])
    truncated: int = Field(default=0, description="tokens of all that were cut away, if any")


class _Degraded(BaseModel):
    degraded: dict[str, Any] = Field(
        default_factory=dict, description="how it was degraded instead of rejected"
    )


class RankedDocument(BaseModel):
    """Document with its score."""

    index: int = Field(description="its place in the request", examples=[0])
    relevance_score: float = Field(examples=[0.98])
    document: DocumentText | None = None


class RerankResponse(_Degraded):
    """Documents, the best ones first."""

    id: str = Field(examples=[f"rerank-{_ID}"])
    model: _Model
    usage: PairsUsage
    results: list[RankedDocument]


class Score(BaseModel):
    """Score of one pair."""

    index: int
    object: Literal["score"]
    score: float = Field(examples=[0.98])


class ScoreResponse(_Degraded):
    """Scores in the order of the pairs."""

    id: str = Field(examples=[f"score-{_ID}"])
    object: Literal["list"]
    created: int = Field(examples=[1_763_629_200])
    model: _Model
    data: list[Score]
    usage: PairsUsage

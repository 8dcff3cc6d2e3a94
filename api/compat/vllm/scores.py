"""Scores of pairs of texts, on the fast path and on the terms of POST /infer: documents by how well
they answer a query (/v1/rerank, /rerank, /v2/rerank), and how well texts go together (/v1/score,
/score)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from api.compat.openai.schemas import ERRORS
from api.compat.vllm.score_schemas import (
    PairsRequest,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
)
from api.context import Context, ContextDep
from api.dependencies import Inferrer
from api.gateway.fallbacks import fallback_plans, plan_of
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult
from api.gateway.prepared import PreparedInputs
from api.gateway.routing.target import ReadyVersions
from api.http import bodies, idempotency
from api.http.connections.connection import arrived_s
from api.http.errors import validated
from api.http.responses import JsonBytes
from api.services.call_preparation import end_after
from jobs import ids
from jobs.errors import Fault, Invalid, MillraceError
from jobs.identity import Caller
from jobs.intake import validation
from jobs.models.registry import Registry

router = APIRouter(tags=["openai"])
RERANK_PATHS = ("/v1/rerank", "/rerank", "/v2/rerank")
SCORE_PATHS = ("/v1/score", "/score")
EACH_MS = 50  #: Growth of the default timeout with each further pair.
_CALL = "call_"
_REPLAYED: dict[int | str, dict[str, Any]] = {200: idempotency.REPLAY_HEADER_DOC, **ERRORS}


Query = tuple[str, Sequence[str]]
"""A text, and those that are scored with it by one call."""


@dataclass(frozen=True, slots=True)
class PreparedScores:
    """Request that is ready to be admitted."""

    body: PairsRequest
    queries: Sequence[Query]
    inputs: PreparedInputs

    @property
    def timeout_ms(self) -> int:
        """Deadline of the whole answer."""
        pairs = sum(len(texts) for _, texts in self.queries)
        return self.body.timeout_ms or 10_000 + EACH_MS * (pairs - 1)


async def rerank(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns documents by how well they answer a query, the best ones first, in the form of Cohere
    and vLLM."""
    return await _answer(request, context, caller, _prepare_rerank, _ranked)


async def score(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns how well each pair of texts goes together, as vLLM does."""
    return await _answer(request, context, caller, _prepare_score, _scored)


_ROUTES = (
    (RERANK_PATHS, rerank, RerankRequest, RerankResponse),
    (SCORE_PATHS, score, ScoreRequest, ScoreResponse),
)
for _paths, _endpoint, _request, _answered in _ROUTES:
    for _path in _paths:
        router.post(
            _path,
            response_model=_answered,
            openapi_extra=idempotency.request_doc(_request.__name__),
            responses=_REPLAYED,
        )(_endpoint)


Prepare = Callable[[Registry, bytes, ReadyVersions], PreparedScores]
Write = Callable[[PreparedScores, str, str, Sequence[float]], dict[str, Any]]
"""Makes the fields of a response: gets the digits of its id, the model's name, all scores."""


async def _answer(
    request: Request, context: Context, caller: Caller, prepare: Prepare, write: Write
) -> Response:
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    models, router = context.models_of(caller.tenant), context.router
    raw = await context.call_bodies.read(request, models.max_line_bytes, caller.tenant)
    since_s = arrived_s(request.scope)
    ready = await router.ready_versions(models, request, caller.tenant, key=key)
    if bodies.is_heavy(raw):
        made = await context.call_preparation.run(request, caller.tenant, prepare, raw, ready)
    else:
        made = prepare(models, raw, ready)
    router.record(made.inputs.target, ready.asker)
    response_headers: dict[str, str] = {}
    session_of = context.inference_session

    async def answer() -> bytes:
        with session_of(
            request, caller, "interactive", made.timeout_ms, since_s, response_headers
        ) as session:
            if len(made.queries) > 1:
                results: Sequence[CallResult] = await fan_out(session, made.inputs)
            else:
                value, plans = made.inputs.values[0], made.inputs.plans
                results = [await session.call(orjson.Fragment(value), iter(plans))]
        return orjson.dumps(_response(made, results, write))

    if key is None:
        return JsonBytes(await answer(), response_headers)
    claim = await idempotency.claim_of(request, caller.tenant, key, raw)
    content, replayed = await context.response_cache.once(claim, made.timeout_ms, answer)
    return JsonBytes(content, idempotency.REPLAYED if replayed else response_headers)


def _prepare_rerank(models: Registry, raw: bytes, ready: ReadyVersions) -> PreparedScores:
    body = validated(RerankRequest, validation.parse_call(raw))
    return _prepared(models, ready, body, [(body.query, body.texts)])


def _prepare_score(models: Registry, raw: bytes, ready: ReadyVersions) -> PreparedScores:
    body = validated(ScoreRequest, validation.parse_call(raw))
    one, other = ([text] if isinstance(text, str) else text for text in (body.text_1, body.text_2))
    if len(one) == 1:
        return _prepared(models, ready, body, [(one[0], other)])
    if len(one) != len(other):
        words = f"text_1 has {len(one)} texts, text_2 {len(other)}: send one, or as many as there"
        raise _refused("text_1", "invalid_value", words)
    pairs = [(first, [second]) for first, second in zip(one, other, strict=True)]
    return _prepared(models, ready, body, pairs)


def _prepared(
    models: Registry, ready: ReadyVersions, body: PairsRequest, queries: Sequence[Query]
) -> PreparedScores:
    """Checks the pairs against their model, each query with its texts. Raises Invalid."""
    if body.timeout_ms:
        end_after(body.timeout_ms)
    target = ready.target(models, body.model, body.user or "")
    model = target.model
    if model.effective_task != "reranking":
        raise _refused("model", "model_not_supported", f"{model.key} scores no pairs of texts")
    values, checked = [{"query": query, "documents": texts} for query, texts in queries], []
    for value in values:
        item = validation.check({"input": value}, (), None, model, True)
        if isinstance(item, list):
            raise Invalid("; ".join(fault.message for fault in item), faults=item)
        checked.append(item.input)
    if len(values) == 1:
        plans = [*fallback_plans(models, target, values[0], {})]
    else:
        plans = [plan_of(target, value, {}) for value in values]
    return PreparedScores(body, queries, PreparedInputs(target, checked, plans))


def _refused(field: str, code: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault((field,), code, message)])


def _response(made: PreparedScores, results: Sequence[CallResult], write: Write) -> dict[str, Any]:
    plan, model = results[0].plan, made.inputs.target.model
    pairs = zip(results, made.queries, strict=True)
    scores = [*chain.from_iterable(_scores(one.output, len(texts)) for one, (_, texts) in pairs)]
    counted = plan.model.spec.unit == "tokens"
    tokens = sum(result.units for result in results) if counted else 0
    shown = made.body.model if plan.model == model else plan.model.key
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    if truncated := sum(result.truncated for result in results):
        usage["truncated"] = truncated
    return {
        **write(made, results[0].id, shown, scores),
        "usage": usage,
        **({"degraded": plan.degraded} if plan.degraded else {}),
    }


def _scores(output: bytes, count: int) -> list[float]:
    """Reads the output of a call. Raises MillraceError where that is no score for each text."""
    found = orjson.loads(output)
    if isinstance(found, list) and len(found) == count and {*map(type, found)} <= {int, float}:
        return found
    raise MillraceError("the model's output is no list of scores, one for each text")


def _ranked(
    made: PreparedScores, call_id: str, model: str, scores: Sequence[float]
) -> dict[str, Any]:
    body = made.body
    assert isinstance(body, RerankRequest)
    best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    texts = {} if body.return_documents is False else dict(enumerate(body.texts))
    return {
        "id": f"rerank-{call_id.removeprefix(_CALL)}",
        "model": model,
        "results": [
            {
                "index": n,
                "relevance_score": scores[n],
                **({"document": {"text": texts[n]}} if texts else {}),
            }
            for n in best[: body.top_n or None]
        ],
    }


def _scored(
    made: PreparedScores, call_id: str, model: str, scores: Sequence[float]
) -> dict[str, Any]:
    return {
        "id": f"score-{call_id.removeprefix(_CALL)}",
        "object": "list",
        "created": int(ids.made_at("call", call_id)),
        "model": model,
        "data": [{"index": n, "object": "score", "score": one} for n, one in enumerate(scores)],
    }

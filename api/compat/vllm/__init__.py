"""Routes that vLLM, Cohere and Jina have: scores of pairs of texts, and tokenization."""

from api.compat.openai.errors import as_openai
from api.http.errors import ERROR_FORMATS

for _path in ("/rerank", "/v2/rerank", "/score", "/tokenize", "/detokenize"):
    ERROR_FORMATS[_path] = ("application/json", as_openai)

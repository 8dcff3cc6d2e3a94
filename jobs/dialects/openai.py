ENDPOINTS = ("/v1/embeddings", "/v1/chat/completions")

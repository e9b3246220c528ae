"""Batches: files of requests, one a line, and the files of their answers, in OpenAI's format; may import api.http,
api.openai, api.whole_answers, errors, generation, leased_work, limits, memory_ceiling, metrics, request_id and
store."""

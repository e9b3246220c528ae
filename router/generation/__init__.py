"""From a request of any API to the events of its answers; may import accounts, adapters, chat, checks, contract,
engine, errors, foreign, foreign_settings, grammar, grants, limits, logs, metrics, rates, request_id, response_cache,
routing, scheduling, shapes and text."""

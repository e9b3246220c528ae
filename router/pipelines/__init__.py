"""Pipelines: requests that steps answer, of which the last model's answer goes the way of any other; may import
api.http, api.kserve, api.whole_answers, chat, checks, contract, errors, generation, metrics, pipeline_settings,
pooling, text and system."""

"""Requests that servers elsewhere answer, passed on and their answers passed back; may import api.anthropic, api.http,
api.openai, errors, foreign, foreign_settings, generation and request_id."""

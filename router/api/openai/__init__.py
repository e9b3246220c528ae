"""OpenAI's routes, chat completions and completions; they may import the plumbing, chat and generation, but not TGI's
routes."""

"""TGI's own routes and the server's state; they may import the plumbing and generation, but not OpenAI's routes."""

"""The HTTP API: reads bodies, asks the engine for answers and renders them; it may import all of the router but rpc and
launcher."""

"""Why a request took as long as it did; may import contract, engine, errors, generation, limits, metrics, request_id
and scheduling."""

"""The contract of the router and the shards: the nouns of their orders, results and facts, each declared once and
plain; may import the standard library only."""

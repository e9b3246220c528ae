"""The database in which files, batches and responses outlive the router, SQLite or PostgreSQL; may import accounts and
errors."""

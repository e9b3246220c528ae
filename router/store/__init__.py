"""The database in which files and batches outlive the router, SQLite or PostgreSQL; may import errors."""

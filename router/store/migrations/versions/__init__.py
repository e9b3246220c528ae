"""The migrations, in order; a database names the newest that it has had; may import none of our packages."""

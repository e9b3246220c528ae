"""TGI's own routes, and what they take and give."""

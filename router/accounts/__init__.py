"""The accounts of API keys: what their requests have used of each model on each day, what that costs, and budgets; may
import errors and system."""

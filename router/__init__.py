"""The router: owns every request, every block table and the schedule; holds no model and imports no torch."""

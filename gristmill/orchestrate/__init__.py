"""The Dagster door: translates and delegates. The only place that imports Dagster."""

"""Your own Dagster assets, upstream of the pipelines' snapshots."""

"""Your own data contracts."""

"""The data checks: one module each, one function `check` each, one stable code each (GM1xx)."""

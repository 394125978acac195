"""Fast paths: each must equal its dense definition."""

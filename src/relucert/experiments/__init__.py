"""Methods side by side, and the tables of the paper."""

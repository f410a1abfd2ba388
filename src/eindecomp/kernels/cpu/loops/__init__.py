"""Any join and any aggregation as a loop nest that is generated for it."""

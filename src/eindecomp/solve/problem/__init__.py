"""The forms a problem takes: as given, as cost tables, and packed for the compiled loops."""

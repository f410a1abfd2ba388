"""Running plans: the public names above the engines."""

"""Plans made readable: what is cut how, what moves where, and why not otherwise."""

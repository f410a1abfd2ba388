"""What can be chosen: how vertices are cut, where tensors lie, and what restricts that."""

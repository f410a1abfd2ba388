"""Plans and runs made readable: explanations, comparisons, traces and progress bars."""

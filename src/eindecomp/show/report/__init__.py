"""The report of a plan: one HTML file with its graph, costs, strategies, and what a run took.

`write.py` tells the story, `content.py` collects what is shown; the page itself is in `page/`.
"""

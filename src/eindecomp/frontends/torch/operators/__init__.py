"""The operators that are imported; importing the files of this folder registers them.

An operator that is not here is imported as torch itself defines it by others, where it does.
"""

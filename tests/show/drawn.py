"""Reading pictures back, for tests."""

from __future__ import annotations

from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def read_svg(text: str) -> ElementTree.Element:
    """The root of a picture, after what every picture must have is checked."""
    root = ElementTree.fromstring(text)  # noqa: S314 - what was written just now
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    return root


def texts(root: ElementTree.Element) -> list[str]:
    """All lines of text."""
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def classed(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """The elements of a class."""
    return [element for element in root.iter() if name in (element.get("class") or "").split()]

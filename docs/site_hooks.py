"""Makes pages of the site from files that lie elsewhere in the repository.

CONTRIBUTING.md and CHANGELOG.md stand at the root, where people and tools look for them; guides
link to programs and modules. The site gets copies, and links that lead there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"Contributing": "CONTRIBUTING.md", "Changelog": "CHANGELOG.md"}
LATER = {"Versions and files": "policy.md"}
"""Pages of docs/ that are listed as soon as they are there."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the root, and the gallery, where there are any."""
    sections: list[dict[str, Any]] = list(config.nav or [])
    [about] = [section["About"] for section in sections if "About" in section]
    about += [{title: name} for title, name in LATER.items() if (ROOT / "docs" / name).exists()]
    about += [{title: name} for title, name in PAGES.items() if (ROOT / name).exists()]
    if (ROOT / "docs" / "gallery" / "index.md").exists():
        sections.insert(2, {"Gallery": _gallery()})
    config.nav = sections
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and the files outside docs/ that pages link to."""
    linked: set[str] = set()
    for file in files.documentation_pages():
        linked |= {name for _, name in _outside(file.content_string)}
    for name in sorted(linked - {*PAGES.values()}):
        path = ROOT / name
        if path.is_file():
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for name in PAGES.values():
        if (ROOT / name).exists():
            text = (ROOT / name).read_text().replace("](docs/", "](")
            files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links that lead out of docs/ lead to the copies, and show doctests as sessions."""
    if (snippet := '--8<-- "README.md:what"') in markdown:
        readme = (ROOT / "README.md").read_text()
        [shown] = re.findall(r"\[start:what\] -->(.*)<!-- --8<-- \[end:what\]", readme, re.S)
        markdown = markdown.replace(snippet, shown)
    up = "../" * page.file.src_uri.count("/")
    for link, name in _outside(markdown):
        markdown = markdown.replace(f"]({link}", f"]({up}{name}")
    return _as_sessions(markdown)


def _as_sessions(markdown: str) -> str:
    """Show doctests as what Python prints: no code, and empty lines where it has them."""
    return re.sub(
        r"^```(?:python|pycon)\n(?=>>> )(.*?)^```$",
        lambda block: f"```pycon\n{block[1].replace('<BLANKLINE>', '')}```",
        markdown,
        flags=re.M | re.S,
    )


def _outside(markdown: str) -> list[tuple[str, str]]:
    """Links to files of the repository outside docs/: as written, and from the root."""
    found = re.findall(r"\]\(((?:\.\./)+((?:examples|src|tests)/[\w./-]+|[A-Z]+\.md))", markdown)
    return list(dict.fromkeys(found))


def _gallery() -> list[str | dict[str, str]]:
    """The gallery's own page, then its problems by title."""
    folder = ROOT / "docs" / "gallery"
    rest = [path for path in sorted(folder.glob("*.md")) if path.name != "index.md"]
    titles = {path: path.read_text().splitlines()[0].removeprefix("# ").strip() for path in rest}
    return ["gallery/index.md", *({titles[path]: f"gallery/{path.name}"} for path in rest)]

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

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "RELEASING.md")
LINK = re.compile(r"\]\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and the files outside docs/ that pages link to."""
    texts = [(DOCS / file.src_uri, file.content_string) for file in files.documentation_pages()]
    texts += [(ROOT / name, (ROOT / name).read_text()) for name in PAGES]
    linked = {
        path
        for page, text in texts
        for link in LINK.finditer(text)
        if (path := _outside(page, link)) is not None and path.is_file()
    }
    for path in sorted(linked | {ROOT / name for name in PAGES}):
        name = path.relative_to(ROOT).as_posix()
        if name in PAGES:
            files.append(File.generated(config, name, content=path.read_text()))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links that lead out of docs/ lead to the copies, and show doctests as sessions."""
    if (snippet := '--8<-- "README.md:what"') in markdown:
        readme = (ROOT / "README.md").read_text()
        [shown] = re.findall(r"\[start:what\] -->(.*)<!-- --8<-- \[end:what\]", readme, re.S)
        markdown = markdown.replace(snippet, shown)
    name = page.file.src_uri
    is_of_root = name in PAGES
    source = (ROOT if is_of_root else DOCS) / name
    up = "../" * name.count("/")

    def relinked(link: re.Match[str]) -> str:
        path = _outside(source, link)
        if path is not None:  # what is a folder has no page: its name is left
            return f"]({up}{path.relative_to(ROOT)}{link[2] or ''})" if path.is_file() else "]"
        return link[0].replace("](docs/", "](") if is_of_root else link[0]

    return _as_sessions(LINK.sub(relinked, markdown))


def _outside(page: Path, link: re.Match[str]) -> Path | None:
    """What a link leads to, if that is in the repository but not in docs/."""
    path = (page.parent / link[1]).resolve()
    inside = path.is_relative_to(ROOT) and path.exists()
    return None if not inside or path.is_relative_to(DOCS) else path


def _as_sessions(markdown: str) -> str:
    """Show doctests as what Python prints: no code, and empty lines where it has them."""
    return re.sub(
        r"^```(?:python|pycon)\n(?=>>> )(.*?)^```$",
        lambda block: f"```pycon\n{block[1].replace('<BLANKLINE>', '')}```",
        markdown,
        flags=re.M | re.S,
    )

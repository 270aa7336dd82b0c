"""What mkdocs calls while it builds the site: thin, the text is made in links.py."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import links
from website.navigation import sources

ROOT = Path(__file__).parents[1]
_LOADED_FROM_ELSEWHERE = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and their images."""
    wanted = [name for name in sources(config.nav or []) if files.get_file_from_path(name) is None]
    pages = [links.in_repository(name) for name in wanted if (ROOT / links.in_repository(name)).is_file()]
    shown = {path for page in pages for path in links.images((ROOT / page).read_text(), page)}
    for path in [*pages, *sorted(shown)]:
        if files.get_file_from_path(links.on_site(path)) is None:
            files.append(File.generated(config, links.on_site(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where their targets are on the site."""
    repository = links.Repository(ROOT, (config.extra.get("repository") or "").rstrip("/"))
    text = links.relinked(
        markdown,
        links.in_repository(page.file.src_uri),
        {file.src_uri for file in files if not file.inclusion.is_excluded()},
        repository,
    )
    return links.for_python_markdown(text)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads anything from another host: readers may have no access to one."""
    built = Path(config.site_dir)
    loaded = [
        f"{page.relative_to(built)}: {found[0]}"
        for page in sorted(built.rglob("*.html"))
        for found in _LOADED_FROM_ELSEWHERE.finditer(page.read_text())
        if 'rel="canonical"' not in found[0]
    ]
    if loaded:
        raise PluginError("pages load from other hosts:\n" + "\n".join(loaded))

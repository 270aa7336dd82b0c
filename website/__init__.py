"""The documentation as a site: `make site` builds it with mkdocs into out/site, with all its links checked."""

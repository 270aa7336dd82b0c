"""The steps of a release, as programs: `python3 -m release.NAME`. They need Python 3.11 and nothing beside it.

`version` writes the version where it is repeated, `changelog` prints a version's changes, `check` refuses a release
that is not ready. `push` builds and pushes the images, with `platforms` (which ones this machine can build), `images`
(the commands of Docker), `sbom`, `locked`, `sign` and `files` (what is installed from the pushed images). `chart`
pushes the chart, `package` builds the Python package, `publish` makes the release on GitHub, `login` signs in to the
registry. Workflows and `make` only call these.
"""

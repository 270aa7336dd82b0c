# A release: each target is one program of release/. docs/releasing.md has the order; .github/workflows/release.yml follows it.

##@ Release
.PHONY: release-check release-version release-chart package publish

release-check: ## Can VERSION= be released? One version everywhere, dated changes, nothing uncommitted
	@python3 -m release.check $(VERSION)

release-version: ## Begin VERSION=: write it everywhere, and date the changes in CHANGELOG.md
	@python3 -m release.version $(VERSION)

release-chart: ## After `make push`: package the chart with those images by digest, and push it (CHARTS=)
	@python3 -m release.chart

package: out/package ## Build the Python package into out/release/python
	@$</bin/python -m release.package

# Away from .venv: building takes no torch.
out/package: requirements/build.txt
	@$(PYTHON) -m venv --clear $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

publish: ## After `make push`, `make release-chart` and `make package`: the release of a tag on GitHub
	@python3 -m release.publish

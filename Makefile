# `make help` is the index. Everything that is built lies in .venv, out/ and the cache directory.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# uv trusts whom the system trusts, as pip does: behind a company's proxy it installs nothing otherwise.
export UV_SYSTEM_CERTS ?= true

# Kinds of tests to leave out, by the name of their marker: make test WITHOUT="cluster helm"
export WITHOUT ?=
# STRICT=1: fail if this machine lacks something that a kind of tests needs, instead of leaving them out.
export STRICT ?=

# PyTorch's build in .venv: auto, cpu or cuda (install/packages.py).
export TORCH ?= auto

# The Kubeflow client that e2e drives, away from .venv: it does not take the same packages.
SDK := out/kubeflow-training/installed

# The oldest torch that is supported, with a Python that it knows.
TORCH_OLDEST := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pytorchjob-operator/torch-oldest

include e2e/cluster/cluster.mk
include install/install.mk
include release/release.mk

##@ Use
run: .venv ## Train the digits example on this machine, without any cluster
	@pytorchjob run -f examples/digits/pytorchjob.yaml

##@ Prove
test: out/compiled ## All that this machine can run, side by side, the real cluster included (STRICT=1: or fail)
	@python -m tests.lanes

prepare: out/compiled

test-long: out/compiled ## Heavy tests that rarely break: before a release, after a new torch, after changes of rounds, hangs, examples, chart or release
	@python -m tests.lanes --long

rights: ## The operator's rights beside its requests in the latest run of `make test`, verb by verb
	@PYTHONPATH=operator:$(CURDIR) $(if $(wildcard .venv/bin/python),.venv/bin/python,python3) -m tests.rights print

costs: ## The files and tests that cost most CPU time in the latest run of `make test` (ROWS=)
	@$(if $(wildcard .venv/bin/python),.venv/bin/python,python3) -m tests.lanes.costs $(ROWS)

GPU_PYTHON ?= python3
test-gpu: ## What only an NVIDIA GPU shows, with the torch of GPU_PYTHON; without a GPU, the same with gloo (ONLY=, results in out/gpu)
	@TEST_GPU=1 PYTHONPATH=operator:$(CURDIR)$$($(GPU_PYTHON) -c 'import pydantic' 2>/dev/null || echo :$(CURDIR)/out/gpu/packages) $(GPU_PYTHON) -m pytest -c tests/gpu/pytest.ini --rootdir . tests/gpu $(if $(ONLY),-k "$(ONLY)")

gpu-packages: .venv ## What `make test-gpu` needs beside torch and pytest, for a machine without network (GPU_PYTHON_VERSION=)
	@uv pip install --quiet --target out/gpu/packages --python-version $(or $(GPU_PYTHON_VERSION),3.12) --only-binary :all: \
		--no-deps -r <(grep -vE '^ ' requirements/dev.txt | grep -oE '^(pydantic|pydantic-core|annotated-types|typing-extensions|typing-inspection|cryptography|cffi|pycparser|hypothesis|sortedcontainers|pyyaml|pytest-timeout)==[^ ;]+')

test-attacks: .venv ## Attacks, and what a bystander notices of each (SAMPLES=; KEEP=1: into benchmarks/ and docs/attacks.md)
	ATTACK_SAMPLES=$(or $(SAMPLES),200) ATTACK_KEEP=$(KEEP) pytest tests/attacks

simulate: ## Schedules of a simulated job: real agents' decisions, real coordinator, real bytes (SEEDS=, FIRST=)
	@PYTHONPATH=operator:$(CURDIR) $(if $(wildcard .venv/bin/python),.venv/bin/python,python3) -m tests.simulation --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)

planted: .venv ## Plant known defects one by one: the tests beside each have to notice it (WORDS=)
	@PYTHONPATH=operator:$(CURDIR) python -m tests.planted $(if $(WORDS),"$(WORDS)")

check: .venv ## Format, lint, types, import contracts and the links of the documentation
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	@$(MAKE) --no-print-directory -o .venv check-site

check-site: .venv  # Without the packages of the site, which only a network brings, its links stay unchecked: STRICT=1 fails.
	@if $(MAKE) --no-print-directory -o .venv out/site-venv; then $(MAKE) --no-print-directory -o .venv site; \
	else echo "make check: the links of the documentation are not checked: the packages of the site are not installed"; test -z "$(STRICT)"; fi

site: .venv out/site-venv ## The documentation as a site in out/site, all its links checked (REPOSITORY=: where its source is read)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(CURDIR) REPOSITORY=$(REPOSITORY) out/site-venv/bin/python -m mkdocs build --config-file website/mkdocs.yml

out/site-venv: requirements/docs.txt | .venv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $@
	$(BIN)/uv pip install --quiet --python $@/bin/python --require-hashes -r $< || { rm -rf $@; false; }
	@touch $@

pictures: .venv ## Draw docs/pictures from real runs, on this machine and on a cluster with the operator (KUBECONFIG=): minutes
	DRAW_DASHBOARDS=1 pytest tests/apiserver/test_dashboards.py
	PYTHONPATH=operator:$(CURDIR) python -m website.pictures

transcript: .venv cluster ## Run README's commands in fresh clones, and keep their output in docs/transcripts: minutes
	KEEP_TRANSCRIPTS=1 pytest -q tests/test_readme.py e2e/test_readme.py e2e/test_registry.py e2e/test_kueue.py \
		e2e/test_v1_examples.py::test_jobs_of_v1_in_a_labelled_namespace_outlive_a_pod

unit: out/compiled ## The tests that need nothing but this machine
	pytest tests -m "not apiserver and not cluster and not helm and not torch and not torch_oldest and not long"

e2e: .venv cluster $(SDK) ## The end-to-end tests alone
	pytest e2e

bench: .venv binaries ## The benchmarks; prints the table of benchmarks/README.md
	$(PYTHON) -m benchmarks

bench-recovery: .venv cluster ## Faults on the cluster, ours beside torchrun: hours; goes on where it was stopped
	python -m benchmarks.recovery run
	python -m benchmarks.recovery series
	python -m benchmarks.recovery table --write

##@ Generate
generate: .venv ## Write every generated file: CRD and its copies, chart README, tables
	python -m pytorchjob_operator.crd
	python -m release.version
	python charts/generate_readme.py
	python -m monitoring
	python -m pytorchjob_operator.rounds.diagram docs/rounds.md
	python -m pytorchjob.reference docs/cli.md
	python -m pytorchjob_operator.crd.page docs/resource.md
	python -m pytorchjob_operator.settings_page docs/environment.md
	python -m pytorchjob.view.causes.page docs/troubleshooting.md
	python -m benchmarks.attacks
	PYTHONPATH=. python -m tests.shell.page docs/shell-blocks.md
	PYTHONPATH=operator:. python -m tests.failures --write
	PYTHONPATH=operator:. python -m tests.styles --write

pod-template-schema: .venv ## Renew the pod template's schema from the API server that KUBECONFIG names
	set -o pipefail; kubectl get --raw /openapi/v2 > build-openapi.json
	python -m pytorchjob_operator.crd.pod_template build-openapi.json > pod_template.new
	mv pod_template.new operator/pytorchjob_operator/crd/pod_template.json; rm build-openapi.json

verify: generate ## Fail if a generated file is not what its source says
	@git diff --exit-code --stat -- benchmarks charts crds docs manifests monitoring || { echo "generated files differ: commit what \`make generate\` wrote"; exit 1; }

LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
NOT_LOADED = triton nvidia-cusolver-cu12 nvidia-cuda-nvrtc-cu12
lock: .venv ## Renew the locked versions in requirements/
	$(LOCK) requirements/bootstrap.in -o requirements/bootstrap.txt
	$(LOCK) requirements/build.in -o requirements/build.txt
	$(LOCK) requirements/agent.in -o requirements/agent.txt
	$(LOCK) requirements/examples.in -o requirements/examples.txt
	$(LOCK) requirements/e2e.in -o requirements/e2e.txt
	$(LOCK) requirements/kubeflow-training.in -o requirements/kubeflow-training.txt
	$(LOCK) $(addprefix --no-emit-package ,$(NOT_LOADED)) requirements/torch-oldest.in -o requirements/torch-oldest.txt
	$(LOCK) pyproject.toml --extra operator -o requirements/operator.txt
	$(LOCK) pyproject.toml --extra operator --extra cli --group dev -o requirements/dev.txt
	$(LOCK) requirements/docs.in -o requirements/docs.txt
	$(LOCK) -c requirements/dev.txt requirements/libraries.in -o requirements/libraries.txt

##@ Tidy
clean: ## Remove what was built in this checkout (not the cache)
	rm -rf .venv out build dist .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv: requirements/bootstrap.txt requirements/dev.txt pyproject.toml install/packages.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/python install/packages.py $(BIN)/python requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch .venv

# Once for the thousands of processes that tests start, also where PYTHONDONTWRITEBYTECODE keeps them from doing it.
out/compiled: .venv
	@mkdir -p $(@D)
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true  # what is for newer Pythons cannot be compiled
	@touch $@

$(SDK): requirements/kubeflow-training.txt | .venv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --require-hashes -r $<
	@touch $@

libraries: .venv ## Add the libraries of some examples to .venv: Transformers, Accelerate, Lightning, PySpark (1 GB)
	@$(BIN)/python install/packages.py $(BIN)/python requirements/libraries.txt

torch-oldest: .venv ## The oldest torch that is supported, into the cache (4 GB; Python 3.11 or 3.12)
	@cmp --silent requirements/torch-oldest.txt $(TORCH_OLDEST)/requirements.txt || { \
		uv venv --quiet --clear --no-python-downloads --python '>=3.11,<3.13' $(TORCH_OLDEST) && \
		uv pip install --quiet --compile-bytecode --no-deps --python $(TORCH_OLDEST)/bin/python --require-hashes -r requirements/torch-oldest.txt && \
		cp requirements/torch-oldest.txt $(TORCH_OLDEST)/requirements.txt; }

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run pictures transcript check-site site test prepare test-long test-gpu gpu-packages rights costs test-attacks simulate planted check unit e2e bench bench-recovery generate pod-template-schema verify lock clean libraries torch-oldest help

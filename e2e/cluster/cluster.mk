# The cluster: a real Kubernetes on this machine. Each target is one script of e2e/cluster; docs/cluster.md says what they do.

##@ Cluster
.PHONY: binaries binaries-tests binaries-apiserver binaries-kueue binaries-gangs binaries-cosign node-image images cluster load-images cluster-down cluster-clean

binaries: ## Build Kubernetes, etcd, CoreDNS, kind, helm and kwok from Go modules into the cache
	@e2e/cluster/binaries.sh all

binaries-tests: ## Only what tests need that use no cluster: API server, scheduler, helm
	@e2e/cluster/binaries.sh tests

binaries-apiserver: ## Only what the API-server tests and benchmarks need
	@e2e/cluster/binaries.sh apiserver

binaries-kueue: ## Build Kueue for the tests that need a real one (`make test-long` does)
	@e2e/cluster/binaries.sh kueue

binaries-gangs: ## Build Kubernetes 1.31 and 1.37, and scheduler-plugins, for the tests of gangs (`make test-long` does)
	@e2e/cluster/binaries.sh gangs

binaries-cosign: ## Build cosign for the test with real signatures (`make test-long` does)
	@e2e/cluster/binaries.sh cosign

node-image: ## Make the kind node image without a registry
	@e2e/cluster/node-image.sh

images: ## Build the images: operator, agent, examples, and what e2e needs
	@e2e/cluster/images.sh

cluster: ## Bring up kind: one control plane, three workers (PROVIDER=existing takes KUBECONFIG)
	@e2e/cluster/cluster.sh up

load-images: ## Rebuild the images and bring what changed into the running cluster
	@e2e/cluster/cluster.sh load

cluster-down: ## Remove every trace of the cluster but the caches
	@e2e/cluster/cluster.sh down

cluster-clean: ## Also remove cached binaries, images and image stores
	@e2e/cluster/cluster.sh clean

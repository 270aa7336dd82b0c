# The operator in a cluster. Each target is one action of install/install.sh; docs/installing.md says what they do.

##@ Install
.PHONY: install push uninstall

install: ## Build the images and install the operator: on kind, or KUBECONFIG=... REGISTRY=... on any cluster
	@install/install.sh install

push: ## Build the images and push them: REGISTRY=registry.example.com/team; TAG=, PLATFORMS=, SIGN_KEY=
	@install/install.sh push

uninstall: ## Remove the operator; the resource definition and all jobs stay
	@install/install.sh uninstall

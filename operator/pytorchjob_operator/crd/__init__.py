"""The CustomResourceDefinition: generated from the models and the rules, never written by hand."""

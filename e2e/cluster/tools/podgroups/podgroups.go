// Package podgroups keeps the gang schedulers' modules in go.mod: tests take their definitions from there.
package podgroups

import (
	_ "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	_ "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

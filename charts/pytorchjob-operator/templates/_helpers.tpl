{{- /* What several templates share: names, labels, the image and the operator's rights. */ -}}

{{- define "pytorchjob-operator.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else if eq (include "pytorchjob-operator.ownsOldName" .) "true" -}}
{{- .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Whether this release was installed when names did not follow the release. It keeps its names: pods of running jobs know the
       coordinator's Service by them. */ -}}
{{- define "pytorchjob-operator.ownsOldName" -}}
{{- $old := lookup "apps/v1" "Deployment" .Release.Namespace .Chart.Name -}}
{{- if $old -}}
{{- eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $old) .Release.Name -}}
{{- end -}}
{{- end -}}

{{- /* Of the coordinator's Service, its Secret and the Role for that; a Service's name has 63 characters at most. */ -}}
{{- define "pytorchjob-operator.coordinator" -}}
{{- include "pytorchjob-operator.fullname" . | trunc 51 | trimSuffix "-" }}-coordinator
{{- end -}}

{{- define "pytorchjob-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Labels of a user, without those that this chart sets. */ -}}
{{- define "pytorchjob-operator.extraLabels" -}}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- $rest := dict -}}
{{- range $key, $value := . -}}{{- if not (has $key $own) -}}{{- $_ := set $rest $key $value -}}{{- end -}}{{- end -}}
{{- if $rest -}}{{ toYaml $rest }}{{- end -}}
{{- end -}}

{{- define "pytorchjob-operator.labels" -}}
{{ include "pytorchjob-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with include "pytorchjob-operator.extraLabels" .Values.commonLabels }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "pytorchjob-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "pytorchjob-operator.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "pytorchjob-operator.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set and no image is published yet: run `make install`, which builds the image and sets it, or push one with `make push REGISTRY=...` and name it with --set image.repository=..." -}}
{{- end -}}
{{- $registry := .Values.image.registry | default .Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- /* Refuses values that contradict each other, which the schema cannot say in words. */ -}}
{{- define "pytorchjob-operator.refusals" -}}
{{- if and .Values.gangScheduling.scheduler .Values.rbac.create (not .Values.gangScheduling.enabled) -}}
{{- fail (printf "gangScheduling.scheduler is %s, but gangScheduling.enabled is false, so jobs would wait for PodGroups that the operator may not make: set gangScheduling.enabled=true, or leave the scheduler empty" .Values.gangScheduling.scheduler) -}}
{{- end -}}
{{- end -}}

{{- define "pytorchjob-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "pytorchjob-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* The rights where jobs live, as ClusterRole or as one Role per namespace. docs/installing.md says why each is needed. */ -}}
{{- define "pytorchjob-operator.rules" -}}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/status]
  verbs: [patch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods, services]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.autoscaling.enabled }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, update, delete]
{{- end }}
{{- if .Values.jobNetworkPolicies.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, update, delete]
{{- end }}
{{- if .Values.gangScheduling.enabled }}
- apiGroups: [scheduling.volcano.sh, scheduling.x-k8s.io, scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch, create, update, delete]
{{- end }}
{{- if .Values.kueue.externalFramework }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [update]
{{- end }}
{{- end -}}

{{- /* The definition's spec, given as text, with pod templates that keep fields which their schema does not know. */ -}}
{{- define "pytorchjob-operator.preservingSpec" -}}
{{- $spec := fromYaml . -}}
{{- range $spec.versions -}}
{{- $replicas := .schema.openAPIV3Schema.properties.spec.properties.pytorchReplicaSpecs.additionalProperties -}}
{{- include "pytorchjob-operator.preserve" $replicas.properties.template -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}

{{- /* Marks a schema and every schema below it that has fields of its own; prints nothing. */ -}}
{{- define "pytorchjob-operator.preserve" -}}
{{- if hasKey . "properties" -}}
{{- $_ := set . "x-kubernetes-preserve-unknown-fields" true -}}
{{- range .properties -}}{{- include "pytorchjob-operator.preserve" . -}}{{- end -}}
{{- end -}}
{{- with .items -}}{{- include "pytorchjob-operator.preserve" . -}}{{- end -}}
{{- with .additionalProperties -}}{{- include "pytorchjob-operator.preserve" . -}}{{- end -}}
{{- end -}}

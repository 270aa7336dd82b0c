module pytorchjob.example/e2e/cluster/tools/pause

go 1.24.0

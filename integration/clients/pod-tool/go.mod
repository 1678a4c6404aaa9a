module keyferry.dev/integration/pod-tool

go 1.26.0

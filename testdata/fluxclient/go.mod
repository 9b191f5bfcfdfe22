module fluxclient

go 1.26

require (
	github.com/fluxcd/pkg/http/fetch v0.19.0
	github.com/fluxcd/pkg/tar v0.14.0
)

require (
	github.com/cyphar/filepath-securejoin v0.4.1 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/opencontainers/go-digest v1.0.1-0.20250116041648-1e56c6daea3b // indirect
	github.com/opencontainers/go-digest/blake3 v0.0.0-20250116041648-1e56c6daea3b // indirect
	github.com/zeebo/blake3 v0.2.4 // indirect
	golang.org/x/sys v0.35.0 // indirect
)

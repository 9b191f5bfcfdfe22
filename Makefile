# limpet: build with Go and git alone.
#
#   make run      the main job on this machine: dashboard, or plain lines off a terminal
#   make test     the fast lane, which CI runs; installs the programs that the tests need
#                 (.ci/setup)
#   make build    ./limpet, static
#   make full     the full lane: also the real API machinery, every fault, fleet and race
#                 test with its counts, and known weaknesses. SEED=n repeats the draws
#                 of a run, RUN=pattern takes only the tests of that name, ONCE=1 the
#                 counts of the fast lane
#   make size     lines and files of each package against the aims
#   make release  dist/: binaries, packages, images, bills of materials, SHA256SUMS
#   make bench    limpet beside others that do the same, with its goals
#   make soak     2 h of a fleet at work while things go wrong

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X limpet/tui/cli/command.Version=$(VERSION)
GO      ?= go
PLATFORMS = linux/amd64 linux/arm64 linux/arm/7 linux/386 linux/riscv64 darwin/arm64
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s

# One variant for the program and all tests, so that they share the build cache.
export CGO_ENABLED = 0
export GOFLAGS = -trimpath

# A hook of git names its repository to all that it starts.
unexport $(shell git rev-parse --local-env-vars 2>/dev/null)

.PHONY: run build test setup full unit lint size vuln apiserver race fuzz sim soak bench bench-smoke bench-go bench-jobs bench-repos bench-tui pictures licences release release-check clean

build:
	$(GO) build -ldflags '$(LDFLAGS)' -o limpet .

run: build
	@if [ -t 0 ] && [ -t 1 ]; then ./limpet demo; else ./limpet demo --once; fi

# Side by side, as each of them waits now and then.
test: setup
	@$(MAKE) --no-print-directory -j2 lint size unit

setup:
	@.ci/setup

# Tests that run side by side wait half of the time. lint has vetted them.
unit:
	$(GO) test -vet=off -timeout 10m -p 3 -parallel 8 ./...

lint: licences
	@files=$$(gofmt -l *.go state sync tui testdata); if [ -n "$$files" ]; then echo "gofmt:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# No GPL and none that is not known, in what is linked into the program.
licences:
	@for os in linux darwin; do GOOS=$$os GOFLAGS= $(GO) list -deps -f '{{with .Module}}{{if .Dir}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' .; done | sort -u | \
	  GOFLAGS= $(GO) run -C testdata/release ./licences

size:
	@$(GO) test -count=1 -v -run '^TestSize$$' ./sync/testenv/layout | grep -v '^[=-]'

# The packages run one after the other: their limits of time are those of a machine
# that does one thing.
RUN ?= .
full: export LIMPET_TESTS = $(if $(ONCE),once,full)
full: export LIMPET_SEED = $(SEED)
full: setup lint apiserver
	GOOS=darwin GOARCH=arm64 $(GO) build ./...
	.ci/setup 'chromium chromium'
	$(GO) vet -C testdata/apiserver ./...
	$(GO) vet -C testdata/fluxclient ./...
	$(GO) vet -C testdata/browser ./...
	$(GO) test -C testdata/browser ./...
	$(GO) vet -C testdata/bench ./...
	$(GO) test -C testdata/bench ./...
	$(GO) vet -C testdata/release ./...
	$(GO) test -C testdata/release ./...
	$(GO) test -p 1 -parallel 6 -timeout 90m -run '$(RUN)' ./...
	GO="$(GO)" .ci/arm
	.ci/vuln
	@$(MAKE) --no-print-directory bench-smoke

vuln:
	MUST=1 .ci/vuln

# The real API machinery is a module of its own; its cold build takes minutes. The
# program is kept in testdata/apiserver/.bin under the hash of its sources.
apiserver:
	LIMPET_TESTS=full $(GO) test -count=1 -timeout 30m -run '^TestBinary$$' ./sync/testenv

race: export CGO_ENABLED = 1
race:
	$(GO) test -race -timeout 30m ./...

fuzz:
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; done

# Simulated worlds of many agents, a seed each, from FROM on. A million take about two hours.
SEEDS ?= 1000000
FROM ?= 1
sim:
	$(GO) test -count=1 -timeout 24h -v -run '^TestSimulation$$' ./sync/jobs -args -seed=$(FROM) -seeds=$(SEEDS)

# Fails when something is lost or memory or descriptors grow. SOAK=12h for longer.
SOAK ?= 2h
soak: export LIMPET_TESTS = full
soak: export LIMPET_SEED = $(SEED)
soak: apiserver
	$(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -v ./tui/cli/e2e -soak $(SOAK)

# Figures of the program at full size; on a machine that does nothing else.
MEASURE = LIMPET_TESTS=full $(GO) test -count=1 -timeout 60m -v ./tui/cli/e2e -figures -run

# limpet beside git, go-git and a bare client-go, in turns, with its goals; BENCH takes
# the flags of testdata/bench, as in BENCH='-run G3 -repo medium,large -rounds 2'.
BENCH ?=
bench: build
	$(GO) build -C testdata/bench -o .bin/bench .
	testdata/bench/.bin/bench -limpet limpet $(BENCH)

# Fails when a ratio is more than 1.2 times worse than that kept; BENCH=-update keeps those
# of this run.
bench-smoke: build
	$(GO) build -C testdata/bench -o .bin/bench .
	testdata/bench/.bin/bench -limpet limpet -repo small,medium -media tmpfs -rounds 5 -run '$(SMOKE)' \
	  -baseline testdata/bench/baseline.json $(BENCH)

SMOKE = G1 tmpfs|(G3|G5|step-directory|artifact) small|G3 medium|G5 medium|G11-remote|G13

bench-go:
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-jobs: apiserver
	$(MEASURE) '^(TestThroughput|TestClaimLatency|TestIdleAgentIsQuiet|TestAgentsShareTheWork)'

bench-repos: apiserver
	$(MEASURE) '^TestManyRepositories$$'

bench-tui:
	$(MEASURE) '^TestTerminalBudgets$$'

# The screens of README, of the demo as it is now.
pictures:
	$(GO) test -count=1 -run '^TestPictures$$' ./tui/cli/e2e -pictures

# A release is built with a Go that has no known weakness: its HTTP/2 and TLS are in
# the program. The go command fetches it where another one is installed.
RELEASE_GO ?= go1.26.11

release: export GOTOOLCHAIN = $(RELEASE_GO)
release:
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' PLATFORMS='$(PLATFORMS)' GO='$(GO)' testdata/release/build

# Builds the release again from a copy of HEAD elsewhere, with an empty build cache,
# and compares.
release-check: release
	testdata/release/check

clean:
	rm -rf limpet dist

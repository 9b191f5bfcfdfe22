# limpet: build with Go and git alone; the tests also need gpg and ssh-keygen.
#
#   make run      the main job on this machine: dashboard, or plain lines off a terminal
#   make test     what CI runs
#   make build    ./limpet, static
#   make fault    what can go wrong, in its long form: kills, power cuts, full
#                 disks, networks, screens; about 20 min on 2 cores. SEED=n repeats a run,
#                 ONLY=pattern runs the parts of that name. The tests are those
#                 of 'make test' with the flag -fault, which raises their counts.
#   make vuln     known weaknesses of what it is built of, by govulncheck; needs its database
#   make soak     2 h of a fleet at work while things go wrong

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X limpet/tui/cli.Version=$(VERSION)
GO      ?= go
PLATFORMS = linux/amd64 linux/arm64 linux/arm linux/386
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s

.PHONY: vuln build run test unit lint race fuzz fault soak bench release apiserver clean bench-jobs bench-repos bench-tui scale sim pictures

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o limpet .

run: build
	@if [ -t 0 ] && [ -t 1 ]; then ./limpet demo; else ./limpet demo --once; fi

# The real API machinery is a module of its own; its cold build takes minutes,
# so it comes first and the linked file is kept in testdata/apiserver/.bin.
apiserver:
	$(GO) test -count=1 -timeout 30m -run '^TestBinary$$' ./sync/testenv

test: lint build apiserver unit

unit:
	$(GO) test -timeout 15m ./...
	$(GO) vet -C testdata/apiserver ./...

lint:
	@files=$$(gofmt -l *.go state sync tui testdata .ci); if [ -n "$$files" ]; then echo "gofmt:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet .ci/fault.go
	$(GO) run $(STATICCHECK) ./...

vuln:
	MUST=1 .ci/vuln

race: apiserver
	$(GO) test -race -timeout 30m ./...

fuzz:
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; done

# Name | package | tests | flags | lane; see .ci/fault.go. Each takes -seed too,
# and logs its figures in a line that begins with "fault: ".
define FAULT_PARTS
damaged state files           | ./state | ^TestDamage$$ | -fault
power cuts of an agent        | ./state | ^TestPowerCutOfAnAgent$$ | -fault
kill -9 of a writer           | ./state | ^TestKill$$   | -fault
kill -9 at 12 points          | ./tui/cli/e2e | ^TestKilledAtEveryPoint$$ | -fault -parallel 3
disks full and read-only      | ./tui/cli/e2e | ^Test(FullStateDisk|FullMirrorDisk|ReadOnlyDisks)$$ | -fault -parallel 3
kill -9 at any moment         | ./tui/cli/e2e | ^TestKilled(AtAnyMoment|WhileIt.*)$$ | -fault -parallel 5
starts on torn and bad files  | ./tui/cli/e2e | Island$$ | -fault
restarts, two on one file     | ./tui/cli/e2e | ^Test(Restarts|SecondAgentOnOneFile|UpgradeInFlight)$$ | -fault -parallel 6
races of four agents          | ./tui/cli/e2e | ^TestRace$$ | -fault -races 3
crowds of pending jobs        | ./tui/cli/e2e | ^TestCrowdEmbedded$$ | -crowd 100000 -crowd-repos 1000
network, clocks, tokens       | ./tui/cli/e2e | ^TestNet | -fault -parallel 12 | waits
five dashboards on one daemon | ./tui/cli/e2e | ^TestDashboards(OnOneDaemon|ComeAndGo)$$ | -fault | aside
hostile Git hosts             | ./tui/cli/e2e | ^TestHostileHosts$$ | -fault
beside another controller     | ./sync | ^TestNeighbours$$ | -fault | aside
every screen in every state   | ./tui | ^Test(EveryState|Any(Sequence|Conversation)|LongSequence)$$ | -fault
simulated worlds              | ./sync/jobs | ^TestSimulation | -seeds $(WORLDS)
endef
export FAULT_PARTS
SEED ?= $(shell date +%s)
# WORLDS=1000000 takes the time of 'make fault' up to half an hour on two cores.
WORLDS ?= 40000

# Simulated worlds of many agents, a seed each, from FROM on: about 1.4 ms of
# processor time for each, in one process per core. A million take about 12 min on
# two cores.
SEEDS ?= 1000000
FROM ?= 1
sim:
	$(GO) test -count=1 -timeout 24h -v -run '^TestSimulation$$' ./sync/jobs -args -seed=$(FROM) -seeds=$(SEEDS)

fault: apiserver
	@$(GO) build -o dist/fault .ci/fault.go
	@GO=$(GO) exec dist/fault $(SEED) "$(ONLY)"

# Two hours of work and faults at random; SOAK=12h for longer. Prints a page of
# figures at the end, and fails when something is lost or memory or descriptors grow.
SOAK ?= 2h

soak: apiserver
	$(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -v ./tui/cli/e2e -soak $(SOAK) -seed $(SEED)

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# The figures of README, with the built program: one agent and its embedded API,
# one agent against the bare calls of the API machinery, claim latency, requests
# of an idle agent, and 1 to 8 agents on one API.
bench-jobs: apiserver
	$(GO) test -count=1 -timeout 60m -v -run '^(TestThroughput|TestClaimLatency|TestIdleAgentIsQuiet|TestAgentsShareTheWork)' ./tui/cli/e2e -figures

# What a thousand Repositories cost that nobody changes: one agent, half an hour.
bench-repos:
	$(GO) test -count=1 -timeout 60m -v -run '^TestManyRepositories$$' ./tui/cli/e2e -figures

# What the dashboard costs on a terminal and how quick it is: each figure five times.
# On a machine that does nothing else; 35 minutes.
bench-tui:
	$(GO) test -count=1 -timeout 60m -v -run '^TestTerminalBudgets$$' ./tui/cli/e2e -budgets

# The pictures of the screens in README, of the demo as it is now.
pictures:
	$(GO) test -count=1 -run '^TestPictures$$' ./tui/cli/e2e -pictures

# The simulated fleet, with what the API costs here, measured anew.
scale: apiserver
	$(GO) test -count=1 -timeout 30m -run '^TestCostsOfTheAPI$$' ./sync/jobs -costs testdata/fleet.json
	$(GO) test -count=1 -timeout 60m -v -run '^TestFleet' ./sync/jobs -fleet

# What is given away is built with the Go that has no known weakness: its HTTP/2 and
# TLS are in the program. The command go fetches it where another one is installed.
RELEASE_GO ?= go1.26.11

release: export GOTOOLCHAIN = $(RELEASE_GO)
release:
	@mkdir -p dist
	@for p in $(PLATFORMS); do \
	  out=dist/limpet-$${p%/*}-$${p#*/}; echo $$out; \
	  CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $$out . || exit 1; \
	done
	@$(GO) list -deps -f '{{with .Module}}{{if .Dir}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' . | sort -u | while read -r mod ver dir; do \
	  [ -n "$$dir" ] || continue; \
	  for f in $$(ls "$$dir" | grep -iE '^(licen[cs]e|copying|notice)'); do \
	    echo "==== $$mod $$ver: $$f"; cat "$$dir/$$f"; echo; \
	  done; \
	done > dist/THIRD_PARTY_LICENSES
	@cp LICENSE dist/
	@cd dist && sha256sum limpet-* > SHA256SUMS && cat SHA256SUMS

clean:
	rm -rf limpet dist

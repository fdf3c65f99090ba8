# Everything here does its own set-up: a checkout, Go, npm and Python are enough.
# Set-up chatter goes to stderr, so that stdout carries results alone.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ARGS  ?=
TEST  ?= ./...
BENCH ?= .

.PHONY: help
help: ## Print this help.
	@echo 'Targets:'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
	@echo 'Variables:'
	@echo '  ARGS        arguments of demo and bench:       make demo ARGS="--help"'
	@echo '  TEST        packages to test:                  make test TEST=./syncer'
	@echo '  FUZZTIME    how long each target is fuzzed:    make fuzz FUZZTIME=10m FUZZPARALLEL=2'
	@echo '  BENCH       which benchmarks run (a pattern):  make microbench BENCH=Copy'
	@echo 'A MongoDB of your own for tests: export DBCONTROLLER_TEST_MONGODB=mongodb://...'

.PHONY: build
build: ## Build bin/dbcontroller, and bin/server and bin/demo of the samples.
	@mkdir -p bin
	@go build -o bin/ ./cmd/... >&2

# One replica set for all test binaries of a run: each starting its own would
# cost more than most tests do. It is stopped however the run ends.
bin/withmongodb: FORCE
	@mkdir -p bin
	@go build -o $@ ./scripts/withmongodb >&2

.PHONY: FORCE
FORCE:

# A failed fetch is not the end: Docker may serve, and withmongodb says what it
# tried when nothing does.
.PHONY: mongodb
mongodb: ## Fetch a MongoDB for tests into the user's cache folder, if one is missing.
	@scripts/fetch-mongodb || echo 'fetch-mongodb failed; looking for MongoDB elsewhere' >&2

# A failure is not the end here either: the tests that need it say what to install.
.PHONY: pymongo
pymongo: ## Get PyMongo for the tests of clients/python, if it is missing.
	@scripts/fetch-pymongo >/dev/null || true

.PHONY: test
# Why is in scripts/test.
test: export GOGC := $(or $(GOGC),400)
test: mongodb pymongo bin/withmongodb ## Run all tests against real servers, with the race detector where it finds races.
	@# Compiling ahead uses all processors, other than what follows. go build would link programs, too.
	go list -race -export ./... >/dev/null
	@# Most tests against servers run without it, as do the programs that tests build.
	go list -export ./... >/dev/null
	scripts/test $(TEST)

# CI has no time for these. Of seeds there are SOAK times as many.
SOAK := 100
.PHONY: soak
soak: mongodb bin/withmongodb ## Run simulations with thousands of seeds, and all acts of whole systems: make soak SOAK=100.
	DBCONTROLLER_SOAK='$(SOAK)' bin/withmongodb -v -- go test -count=1 -timeout 24h ./integration/simulation
	DBCONTROLLER_SOAK='$(SOAK)' bin/withmongodb -v -- go test -race -count=1 -timeout 24h \
	  -run '^Test(Elections|RestoredPassive|RestoredServed|ShapeChanges|ShardedApplicationMoved|ShardedCollectionMadeAnew)$$' ./integration
	DBCONTROLLER_SOAK='$(SOAK)' bin/withmongodb -v -- go test -v -count=1 -timeout 1h -run '^TestRegionsUnderLoad$$' ./integration/regions

# CI runs it with a few hundred records.
SEARCH := 100000,200
.PHONY: search
search: mongodb bin/withmongodb ## Search through an upgrade and a rollback while servers are killed, with so many records and writes a second: make search SEARCH=100000,200.
	DBCONTROLLER_SEARCH='$(SEARCH)' bin/withmongodb go test -count=1 -timeout 2h -v -run 'TestSearchOverFlips$$' ./integration

# CI runs a part of it: TestThroughProxy.
SPEC ?= router replicaset fixed moving
.PHONY: spec
spec: mongodb ## Run the drivers' specification tests directly and through the proxy, and write docs/specification.md, in about 20 minutes.
	DBCONTROLLER_SPEC='$(SPEC)' go test -count=1 -timeout 2h -run 'TestInFull$$' ./integration/spectest

# CI has no time for this. mongodump and mongorestore come from PATH, or from DBCONTROLLER_TEST_MONGODUMP and
# DBCONTROLLER_TEST_MONGORESTORE. Without them the other clients run.
CLIENTS ?= one two killed restarted cut controllers sharded steps primary
.PHONY: clients
clients: mongodb pymongo ## Run unmodified clients of all kinds behind proxies over whole upgrades, within one cluster, across two, with proxies that are killed or restarted or whose replies break off, with controllers that are killed, on a sharded cluster, with such faults in each step of a switch, and with the primary killed in each: make clients CLIENTS=two.
	DBCONTROLLER_CLIENTS='$(CLIENTS)' go test -count=1 -timeout 1h -v -run 'TestUnmodifiedClients$$' ./integration

# CI tests what a release left (TestReleased), and not two builds side by side.
.PHONY: older
older: mongodb bin/withmongodb ## Run upgrades with controllers of this build and of an older one: make older OLDER=v0.1.0.
	@scripts/test-older '$(OLDER)'

# CI has no time for this either: it runs the seeds, and what was found before, as tests.
FUZZTIME     ?= 10m
FUZZPARALLEL ?= 2
.PHONY: fuzz
fuzz: ## Fuzz all parsers of bytes from outside, each for FUZZTIME: make fuzz FUZZTIME=1h TEST=./access/...
	@FUZZTIME='$(FUZZTIME)' FUZZPARALLEL='$(FUZZPARALLEL)' scripts/fuzz $(TEST)

# What can be tried without a database: packages whose tests need one are left to make test,
# and those that need one for some of them skip these.
.PHONY: check
check: mongodb lint ## Check format, lint and the short tests. The first time it fetches MongoDB and compiles.
	go test -short $$(go list ./... | grep -Ev '/integration|/gen/|store/mongostore|etcdstore$$|overetcd$$|embedetcd$$|program/databases$$')

.PHONY: demo
demo: mongodb build ## Run a whole upgrade on this machine: make demo ARGS="...".
	@bin/demo $(ARGS)

# It needs Chromium, and takes one to three minutes, so it is no part of make test.
.PHONY: ui
ui: mongodb build bin/withmongodb ## Test the page in a headless Chromium: make ui SHOTS=docs/page also takes its pictures.
	@SHOTS='$(SHOTS)' scripts/test-page

# It runs its own servers; nothing is shared. With -only rows are printed and nothing is written.
.PHONY: bench
bench: mongodb build ## Measure against the bars and write docs/benchmarks.*: make bench ARGS="-only '^lag'".
	@go build -o bin/bench ./integration/bench >&2
	@bin/bench $(ARGS)

.PHONY: bench-scale
bench-scale: ## Measure how the cost of a record grows to 10^7 records and write docs/scale.*, in about 12 minutes.
	@$(MAKE) --no-print-directory bench ARGS="-scale 10000000 -runs 2 $(ARGS)"

BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

# It prints the figures of docs/rollout.md.
FLEET := 40
.PHONY: fleet
fleet: mongodb bin/withmongodb ## Measure FLEET deployments at rest in one process, with a real MongoDB and etcd: make fleet FLEET=40.
	DBCONTROLLER_FLEET='$(FLEET)' bin/withmongodb go test -count=1 -timeout 30m -v -run TestManyAtRest ./integration/fleet

.PHONY: bench-compare
bench-compare: ## Set two runs side by side: make bench-compare OLD=old.json NEW=docs/benchmarks.json.
	@go build -o bin/bench ./integration/bench >&2
	@bin/bench -gobench '$(OLD)' >bin/bench-old.txt
	@bin/bench -gobench '$(NEW)' >bin/bench-new.txt
	@go run $(BENCHSTAT) old=bin/bench-old.txt new=bin/bench-new.txt

.PHONY: microbench
microbench: mongodb bin/withmongodb ## Run the Go benchmarks of the packages.
	bin/withmongodb -v -cache 1 -dir "$${TMPDIR:-/tmp}" -- go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m -p 1 $(TEST)

.PHONY: lint
lint: ## Check format, go vet, staticcheck and more, by golangci-lint.
	@scripts/lint

.PHONY: release
release: ## Make archives, packages, the image, checksums and lists of modules in dist/: make release VERSION=v1.2.3.
	@VERSION='$(VERSION)' scripts/release

.PHONY: image
image: ## Make the container image in dist/, for docker load: make image VERSION=v1.2.3.
	@VERSION='$(VERSION)' PLATFORMS='linux/amd64 linux/arm64' scripts/release

# Each tool says so when it cannot run; findings of those that do are errors.
.PHONY: audit
audit: ## Look for known vulnerabilities and suspicious code.
	@scripts/audit

.PHONY: generate
generate: ## Generate code and documents that are committed. Needs protoc.
	scripts/generate
	go generate ./...

.PHONY: clean
clean: ## Remove what was built. The fetched MongoDB stays in the user's cache folder.
	rm -rf bin dist

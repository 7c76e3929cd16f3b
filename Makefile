# What a newcomer needs: `make demo` and `make test`. Everything here needs Go
# and the module proxy; the tests on real Kafka need Java and Maven as well.

SHELL := /bin/bash

GOTESTSUM_VERSION := v1.13.0
GOLANGCI_VERSION  := v2.15.0

# The version is part of the file's name, so that a new pin is a new tool.
TOOLS     := $(CURDIR)/.tools
GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)
GOLANGCI  := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)

# The main module, and folders that are modules of their own. What is not there
# is left out.
MODULES := . $(wildcard integration bench)

ARGS     ?=
FUZZTIME ?= 20s
BENCH    ?=

VERSIONS ?= 4.2.1 4.3.1 4.4.0
PACKAGES ?= ./...
RECORDS  ?= 1000000
ROUNDS   ?= 3
DURING   ?= 6m
SEED     ?= 1
DURATION ?= 1h
SOAK     ?= 10m
SEEDS    ?= 2000

.PHONY: help demo demo-kafka test epochs soak simulate mutants test-kafka-matrix sweep endurance soak-ledger chaos lint bench fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## real records through a share group and transactions, then an audit (ARGS="--json")
	@go run ./cmd/sharetxn demo $(ARGS)

demo-kafka: ## the same with guarantee ledger on stock Kafka, three brokers as processes (ARGS="--faults=heavy")
	@scripts/demokafka $(ARGS)

test: $(GOTESTSUM) ## all tests of all modules, with the race detector, and a minute of fuzzing
	@GOTESTSUM=$(GOTESTSUM) scripts/test $(MODULES)

simulate: ## seeds of whole scenarios in virtual time; of each 100 seeds every rare state must be reached once (SEEDS=2000 ARGS=-race)
	@set -o pipefail; go test -count=1 -v -timeout=60m -tags=synctests $(ARGS) -run '^TestSeeds$$' ./simulation \
		-seeds=$(SEEDS) -rare=$$(($(SEEDS) / 100)) | grep -Ev '^ *(=== |--- PASS: TestSeeds/)'

test-kafka-matrix: $(GOTESTSUM) ## integration's tests on each Kafka version, as processes (VERSIONS="4.2.1" PACKAGES=./conformance)
	@GOTESTSUM=$(GOTESTSUM) scripts/matrix "$(VERSIONS)" "$(PACKAGES)"

sweep: ## every fault at every request of a small service's life, and two near an outcome; each record published once
	@set -o pipefail; go test -count=1 -v -timeout=40m -run '^Test(OneFault|TwoFaults|ForEver)$$' ./sweep -whole | grep -v '^=== \|^        --- PASS'

endurance: ## a million records, four members, three brokers, and faults (RECORDS=60000 ROUNDS=1)
	@cd integration && go test -count=1 -v -timeout=20m -run '^TestEndurance$$' ./endurance -records=$(RECORDS) -rounds=$(ROUNDS) -pace=8s

epochs: ## 40,000 transactions of one id on the embedded broker, past the last epoch of its producer id
	@go test -count=1 -v -run '^TestEpochs$$' ./internal/broker -transactions 40000

soak: ## ten minutes of a service whose broker is killed, stands still and comes back: memory stays flat (SOAK=10m SEED=1)
	@go test -count=1 -v -timeout=0 -run '^TestSoak$$' ./cmd/sharetxn -soak=$(SOAK) -soak-seed=$(SEED)

soak-ledger: ## an hour of members with guarantee Ledger: what they and the ledger hold stays flat (DURATION=1h)
	@cd integration && go test -count=1 -v -timeout=0 -run '^TestSoak$$' ./soak -duration=$(DURATION) -every=30s -out=$(CURDIR)/dist/soak

chaos: ## a million records under guarantee ledger while processes and brokers die (RECORDS=60000 DURING=1m SEED=1)
	@cd integration && go test -count=1 -v -tags=chaos -timeout=90m -run '^Test(Chaos|Controls)$$' ./chaos -records=$(RECORDS) -during=$(DURING) -seed=$(SEED)

lint: $(GOLANGCI) ## gofmt, go vet and golangci-lint over all modules
	@GOLANGCI=$(GOLANGCI) scripts/lint $(MODULES)

bench: ## the comparisons of docs/benchmarks.md (ARGS="-rounds 3"); BENCH=regexp: the packages' own benchmarks instead
ifeq ($(BENCH),)
	@cd bench && go run . $(ARGS)
else
	@go test -run '^$$' -bench '$(BENCH)' -benchmem ./...
endif

fuzz: ## every fuzz target in turn, longer than make test (FUZZTIME=20s for each)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

mutants: ## each guard against loss and doubling, taken away: a test must fail (ARGS="-run 'lock'")
	@go run ./scripts/mutants $(ARGS)

clean: ## remove tools and build output; caches of Go and Maven stay
	@rm -rf $(TOOLS) bin dist

$(GOTESTSUM):
	@GOBIN=$(TOOLS) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv $(TOOLS)/gotestsum $@

$(GOLANGCI):
	@GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/golangci-lint $@

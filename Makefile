# The menu. Each target installs what it needs: the Rust target for handlers, and for tests Debian packages.
.DEFAULT_GOAL := help
.PHONY: help setup toolchain build guests languages demo check test faults soak soak-handlers mutants bench bench-peers bench-stages bench-native cost

help: ## show this menu
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

toolchain:
	@scripts/setup.sh build

setup: ## install what is missing: wasm32-wasip1, and for tests redis-server, sqlite3, python3-venv, openssl, faketime, nodejs, npm
	@scripts/setup.sh tests

build: toolchain ## build the binary (the first time takes about five minutes)
	cargo build --package hourhand

guests: toolchain ## build the example handlers into target/guests
	@scripts/guests.sh

languages: setup ## build the examples in other languages into target/languages (minutes the first time)
	@scripts/languages.sh

demo: build guests ## a runner, a few real jobs, and what becomes of them (half a minute after the build)
	@scripts/demo.sh

check: toolchain guests ## formatting and lints of everything
	cargo fmt --all --check
	cargo fmt --manifest-path guest-examples/Cargo.toml --all --check
	cargo fmt --manifest-path examples/plain-rust/Cargo.toml --check
	cargo fmt --manifest-path scripts/peers/apalis/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings

test: setup check ## everything that must hold: check, and all tests against real servers
	@scripts/test.sh

SEED ?=
SCENARIO ?=
faults: setup guests ## every fault at full size, with ledger and doctor: make faults SEED=7 SCENARIO=kills (half an hour for all)
	@scripts/faults.sh "$(SEED)" "$(SCENARIO)"

SECONDS ?= 60
soak: setup guests ## random steps against a model of the stores: make soak SECONDS=60
	@scripts/soak.sh $(SECONDS)

JOBS ?= 200000
RELOADS ?= 500
soak-handlers: setup guests ## a runner's memory over 200,000 jobs and 500 replaced handlers (some ten minutes)
	@scripts/soak-handlers.sh $(JOBS) $(RELOADS)

mutants: setup guests ## deliberate faults in the stores: the conformance suite must notice each
	python3 tests/mutants/run.py

BENCH ?=
bench: setup guests ## measure both stores beside what must be reached: make bench BENCH="--rounds 5 --seconds 60" (half an hour and more)
	@scripts/bench.sh $(BENCH)

ROUNDS ?= 5
PEERS ?=
QUICK ?=
bench-peers: setup guests ## Hourhand beside bee-queue, BullMQ, Celery and apalis-redis, in turns: make bench-peers ROUNDS=5 PEERS=bullmq (some 20 minutes for all)
	$(if $(HOURHAND_BIN),,cargo build --release --package hourhand)
	@scripts/peers/bench.py $(if $(QUICK),--quick,--rounds $(ROUNDS) --jobs $(JOBS)) $(PEERS)

STAGES ?= 500000 128
bench-stages: setup guests ## where the time of a job goes, by thread and script: make bench-stages STAGES="500000 256"
	cargo build --release --package hourhand
	@scripts/stages.py $(STAGES)

bench-native: setup guests ## a handler that computes beside the same code run natively, with and without SIMD (some five minutes)
	cargo build --release --package hourhand
	@scripts/photographs.sh
	@scripts/native.py

COST_SECONDS ?= 60
cost: setup guests ## measure a runner that is idle, cut off from its store, and flooded (some fifteen minutes)
	@scripts/cost.sh $(COST_SECONDS) $(JOBS)

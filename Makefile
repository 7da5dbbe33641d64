# The menu. Each target installs what it needs: the Rust target for handlers, and Debian packages.
.DEFAULT_GOAL := help
.PHONY: help setup guests demo check test soak mutants bench

help: ## show this menu
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: wasm32-wasip1, redis-server, python3-venv, openssl
	@scripts/setup.sh

guests: setup ## build the example handlers into target/guests
	@scripts/guests.sh

demo: setup guests ## a runner, a few real jobs, and what becomes of them (about a minute after the build)
	@scripts/demo.sh

check: setup guests ## formatting and lints of everything
	cargo fmt --all --check
	cargo fmt --manifest-path guest-examples/Cargo.toml --all --check
	cargo clippy --workspace --all-targets -- -D warnings

test: check ## everything that must hold: check, and all tests against real servers
	@scripts/test.sh

SECONDS ?= 60
soak: setup ## random steps against a model of the stores: make soak SECONDS=60
	@scripts/soak.sh $(SECONDS)

mutants: setup ## deliberate faults in the store's scripts: the conformance suite must notice each
	python3 tests/mutants/run.py

bench: setup guests ## measure this machine: throughput, and what a million scheduled jobs cost
	@scripts/bench.sh

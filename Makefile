# Two commands matter: `make run` runs the main job, `make test` shows that all of it works. `make help` lists the rest.

# What is costly to build and the same for all checkouts (Kubernetes, images) lives outside of the tree. Our own programs
# do not: cargo takes equal crates of two checkouts for one, and would run one's tests on the other's programs.
BERTH_CACHE ?= $(HOME)/.cache/berth
export BERTH_CACHE
export CARGO_TARGET_DIR ?= $(CURDIR)/target

CARGO ?= cargo
DEV = $(CARGO) run --quiet --package berth-dev --bin berth-dev --
# Where `make images` puts its images in the end: REGISTRY/berth-agent:TAG and so on.
REGISTRY ?= localhost
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
BUILDAH ?= buildah
PROFILE ?= release
PROGRAMS = berth-agent berth-allocator berth-brain berth-pubsub berth-sdk
# The authorities that an image trusts which speaks to servers on the internet.
AUTHORITIES ?= /etc/ssl/certs/ca-certificates.crt
# What `make bench` measures: programs as they ship.
BENCH_PROFILE ?= release
# How long `make chaos` and `make soak` go on.
SECONDS ?= 60
SOAK_SECONDS ?= 3600
SOAK_KILLS ?= 1000
# How long `make fuzz` goes on at each port.
FUZZ_SECONDS ?= 600

.PHONY: help run down status images test check units chaos soak fuzz bench format generate clean machine

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Programs that write to /dev/null as root by way of a temporary file leave an ordinary file in its place. What is written
# to that is read again by all that ask for an empty input: rustc takes it for Rust, and cargo cannot go on, and remembers.
machine:
	@test -c /dev/null || { echo "/dev/null is not a device: it is made anew" >&2; \
		mknod -m 666 /dev/null.berth c 1 3 && mv -f /dev/null.berth /dev/null && \
		rm -f "$(CARGO_TARGET_DIR)/.rustc_info.json"; }

run: machine ## two real nodes, Berth, a Fleet, and a datagram answered by one of its servers; run again to continue
	@$(CARGO) build --package berth-brain --package berth-agent --package berth-sdk --package simple-udp --package berth-dev
	@$(DEV) run

down: ## take down what `make run` has brought up, and leave nothing
	@$(DEV) down

status: ## what the clusters on this machine are doing
	@$(DEV) status

images: ## the programs as images, REGISTRY/berth-agent:TAG and so on, in the machine's storage of images
	@$(CARGO) build --quiet --profile $(PROFILE) $(PROGRAMS:%=--package %)
	@set -e; folder=$$(mktemp -d); trap 'rm -r "$$folder"' EXIT; \
	cp "$(AUTHORITIES)" "$$folder/ca-certificates.crt"; for program in $(PROGRAMS); do \
		cp "$(CARGO_TARGET_DIR)/$$(uname -m)-unknown-linux-gnu/$(PROFILE:dev=debug)/$$program" "$$folder/"; \
		$(BUILDAH) build --quiet --isolation chroot --tag "$(REGISTRY)/$$program:$(TAG)" \
			--file "images/$$program.Containerfile" "$$folder"; \
		rm "$$folder/$$program"; \
	done

test: check ## every check and every test, on real components
	@$(DEV) install
	@$(DEV) sweep
	@$(CARGO) build --quiet --workspace --bins
	@$(CARGO) test --workspace --no-fail-fast; result=$$?; $(DEV) sweep; exit $$result

chaos: ## kill programs at random under churn for SECONDS, with the choices of SEED, and KILLS times at least; what must hold is checked
	@$(CARGO) build --quiet --workspace --bins
	@BERTH_CHAOS_SECONDS=$(SECONDS) BERTH_CHAOS_KILLS=$(KILLS) BERTH_CHAOS_SEED=$(SEED) \
		$(CARGO) test --package berth-stories --test chaos -- --nocapture

soak: ## each program dies before and after each of its effects; then the same as chaos for long, and 1,000 kills at least
	@$(CARGO) build --quiet --workspace --bins
	@BERTH_KILL_POINTS=all $(CARGO) test --package berth-stories --test kill_points -- --nocapture
	@$(MAKE) --no-print-directory chaos SECONDS=$(SOAK_SECONDS) KILLS=$(SOAK_KILLS)
	@BERTH_AGENT_KILLS=100 BERTH_SHARED_SERVERS=200 BERTH_SHARED_SECONDS=600 BERTH_PARTITION_SECONDS=360 BERTH_STARTS=1000 \
		$(CARGO) test --package berth-stories --test stories -- --nocapture the_agent_dies a_fleet_shares a_node_is_cut_off a_game_in_a_hurry
	@BERTH_DRAIN_ROUNDS=10000 $(CARGO) test --package berth-agent --lib -- --nocapture drain_race
	@BERTH_SERVERS_EACH=100 $(CARGO) test --package berth-allocator --test program -- --nocapture every_server_is_given_away_once

fuzz: ## nonsense at each port of the SDK for FUZZ_SECONDS: no panic, no memory, and the neighbour served meanwhile
	@$(CARGO) build --quiet --package berth-sdk
	@BERTH_FUZZ_SECONDS=$(FUZZ_SECONDS) BERTH_FUZZ_SEED=$${SEED:-$$(shuf -i 1-1000000000000 -n 1)} \
		$(CARGO) test --package berth-sdk --test program -- --nocapture changed_nonsense

bench: ## what Berth costs, as one table; BENCH="--json --servers 2000" and the like
	@$(CARGO) build --quiet --profile $(BENCH_PROFILE) --workspace --bins
	@"$(CARGO_TARGET_DIR)/$$(uname -m)-unknown-linux-gnu/$(BENCH_PROFILE:dev=debug)/berth-bench" $(BENCH)

check: machine ## format, lints, docs, generated files, units
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --workspace --all-targets -- --deny warnings
	@RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --quiet --workspace --no-deps
	@$(CARGO) run --quiet --package berth-api --features generate --bin generate -- --check
	@command -v systemd-analyze > /dev/null || $(DEV) install
	@$(MAKE) --no-print-directory units

# The programs are not where the units have them, which is all that may be other here. The exposure is a tenth of MOST.
units: MOST = 29
units: ## whether systemd takes the units of systemd/, and how much they hold back
	@set -e; folder=$$(mktemp -d); trap 'rm -r "$$folder"' EXIT; cp systemd/*.service systemd/*.timer "$$folder/"; \
	sed -i 's|^ExecStart=/usr/local/bin/[a-z-]*|ExecStart=/bin/true|' "$$folder"/*.service; \
	said=$$(systemd-analyze verify --man=no "$$folder"/* 2>&1) && test -z "$$said" || { echo "$$said"; exit 1; }; \
	for unit in "$$folder"/*.service; do \
		systemd-analyze security --offline=true --no-pager --threshold=$(MOST) "$$unit" > "$$folder/exposure" \
			|| { cat "$$folder/exposure"; exit 1; }; \
	done

generate: ## write the CRDs and the SDK types anew
	@$(CARGO) run --quiet --package berth-api --features generate --bin generate

format: ## format the code
	@$(CARGO) fmt --all

clean: ## remove build results of this checkout (not the shared cache)
	@$(CARGO) clean

# Towline. `make` builds, `make demo` shows it working, `make test` proves it.
#
# A thin face for meson and ninja. Missing tools are installed with apt where that is possible (as root, on
# Debian and its relatives); where everything is there nothing is fetched.

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
NINJA = ninja -j $(JOBS)
SETUP = --prefix=$(PREFIX)

TOOLS = gcc meson ninja pkg-config python3
PACKAGES = gcc libc6-dev meson ninja-build pkg-config python3 libzstd-dev
TEST_PACKAGES = libcmocka-dev

.PHONY: all demo test check examples bench install clean tools test-tools asan tsan help

all: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD)
	@python3 tools/cuda_header.py $(BUILD)/src/gen/cuda_abi.h $(BUILD)/include/cuda.h

help:
	@sed -n 's/^# \(.*\)/\1/p' Makefile | head -5
	@echo "targets: all demo test check examples bench install clean; PREFIX=$(PREFIX) BUILD=$(BUILD)"

# Only when something is missing, and only where apt can help.
tools:
	@for tool in $(TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ]; then \
	    if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	        echo "missing:$$missing; installing $(PACKAGES)"; \
	        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGES) >/dev/null; \
	    else echo "missing:$$missing. On Debian: apt install $(PACKAGES)" >&2; exit 1; fi; \
	fi

# The unit tests want cmocka; without it the rest still runs.
test-tools: tools
	@if ! pkg-config --exists cmocka; then \
	    if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	        (apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(TEST_PACKAGES)) >/dev/null 2>&1 \
	            || echo "cmocka cannot be installed: the unit tests are left out"; \
	    else echo "cmocka is missing: the unit tests are left out (apt install $(TEST_PACKAGES))"; fi; \
	fi

$(BUILD)/build.ninja: | tools
	@meson setup $(BUILD) $(SETUP)

asan: | tools
	@[ -f $(BUILD)-asan/build.ninja ] || meson setup $(BUILD)-asan $(SETUP) -Db_sanitize=address,undefined -Db_lundef=false
	@$(NINJA) -C $(BUILD)-asan

tsan: | tools
	@[ -f $(BUILD)-tsan/build.ninja ] || meson setup $(BUILD)-tsan $(SETUP) -Db_sanitize=thread -Db_lundef=false
	@$(NINJA) -C $(BUILD)-tsan

# A real kernel through client and server, on the software GPU: no GPU and no CUDA toolkit needed.
demo: all
	@BUILD=$(BUILD) sh examples/demo

# Everything: three builds (plain, address and undefined-behaviour sanitizers, thread sanitizer).
test: test-tools
	@$(MAKE) --no-print-directory all asan tsan
	@python3 tests/run --build $(BUILD) --trees plain,asan,tsan

# The plain build only.
check: test-tools
	@$(MAKE) --no-print-directory all
	@python3 tests/run --build $(BUILD) --trees plain

examples: all
	@examples/run --towline $(BUILD)/bin/towline

bench: all
	@bench/run --build $(BUILD)

install: all
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) && $(NINJA) -C $(BUILD)
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan

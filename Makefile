# Towline. `make` builds, `make demo` shows it working, `make test` proves it.
#
# A thin face for meson and ninja. Missing tools are installed with apt where that is possible (as root, on
# Debian and its relatives); where everything is there nothing is fetched.

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# The one place of the version is meson.build.
VERSION = $(shell sed -n "s/^    version: '\(.*\)',\$$/\1/p" meson.build)
DIST = towline-$(VERSION)
NINJA = ninja -j $(JOBS)
SETUP = --prefix=$(PREFIX)
# Of tests that are many and alike one in so many, drawn by a seed (this commit's hash): make check-sanitizers DRAW=4
DRAW ?= 1
SEED ?=
DRAWN = --draw $(DRAW) --seed "$(SEED)"

TOOLS = gcc meson ninja pkg-config python3
PACKAGES = gcc libc6-dev meson ninja-build pkg-config python3 libzstd-dev
TEST_PACKAGES = libcmocka-dev valgrind clang-format-14 clang-tidy-14
# Without a network it fails within seconds.
APT = timeout 300 apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10
APT_INSTALL = DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends

.PHONY: all demo test check check-sanitizers check-vm check-moves check-long api-status examples bench install uninstall dist deb wheel image check-packages clean tools test-tools asan tsan help

all: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD)
	@python3 tools/cuda_header.py $(BUILD)/src/gen/cuda_abi.h $(BUILD)/include/cuda.h

help:
	@sed -n 's/^# \(.*\)/\1/p' Makefile | head -5
	@echo "targets: all demo test check-sanitizers check-vm check-moves check-long api-status examples bench install uninstall dist deb wheel image check-packages clean; PREFIX=$(PREFIX) BUILD=$(BUILD)"

# Only when something is missing, and only where apt can help.
tools:
	@for tool in $(TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	pkg-config --exists libzstd 2>/dev/null || optional=libzstd-dev; \
	if [ -n "$$missing" ]; then \
	    if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	        echo "missing:$$missing; installing $(PACKAGES)"; \
	        $(APT) update && $(APT_INSTALL) $(PACKAGES) >/dev/null; \
	    else echo "missing:$$missing. On Debian: apt install $(PACKAGES)" >&2; exit 1; fi; \
	elif [ -n "$$optional" ]; then \
	    if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && $(APT) update >/dev/null 2>&1 && \
	        $(APT_INSTALL) $$optional >/dev/null 2>&1; then :; \
	    else echo "libzstd is missing: the software GPU will not run code that was compressed with it (apt install libzstd-dev)"; fi; \
	fi

# The unit tests want cmocka, others the rest; without them what is there still runs. Asked for once in a build folder. A tree
# that was set up without cmocka looks again as soon as it is here, whoever installed it.
test-tools: tools
	@pkg-config --exists cmocka || missing=libcmocka-dev; \
	for tool in valgrind clang-format-14 clang-tidy-14; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	left=$$missing; \
	if [ -n "$$missing" ] && [ ! -f $(BUILD)/asked-for ]; then \
	    mkdir -p $(BUILD); touch $(BUILD)/asked-for; \
	    if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && $(APT) update >/dev/null 2>&1; then \
	        left=; \
	        for package in $$missing; do $(APT_INSTALL) $$package >/dev/null 2>&1 || left="$$left $$package"; done; \
	    fi; \
	fi; \
	for tree in $(BUILD) $(BUILD)-asan $(BUILD)-tsan; do \
	    if [ -f $$tree/build.ninja ] && pkg-config --exists cmocka && \
	        ! grep -q '"cmocka"' $$tree/meson-info/intro-dependencies.json; then \
	        meson setup --reconfigure $$tree >/dev/null || { echo "meson setup --reconfigure $$tree fails" >&2; exit 1; }; \
	    fi; \
	done; \
	[ -z "$$left" ] || echo "missing: $$left. What needs them is left out (apt install $(TEST_PACKAGES))"

# Tools are looked for when a tree is set up, not at every build.
$(BUILD)/build.ninja:
	@$(MAKE) --no-print-directory tools
	@meson setup $(BUILD) $(SETUP)

# Reports tell functions and lines. More than that (-g) takes a compiler a fifth longer.
SANITIZED = -Doptimization=1 -Dc_args=-g1
asan: $(BUILD)/build.ninja
	@[ -f $(BUILD)-asan/build.ninja ] || meson setup $(BUILD)-asan $(SETUP) $(SANITIZED) -Db_sanitize=address,undefined -Db_lundef=false
	@$(NINJA) -C $(BUILD)-asan

tsan: $(BUILD)/build.ninja
	@[ -f $(BUILD)-tsan/build.ninja ] || meson setup $(BUILD)-tsan $(SETUP) $(SANITIZED) -Db_sanitize=thread -Db_lundef=false
	@$(NINJA) -C $(BUILD)-tsan

# A picture, computed through client and server on the software GPU: no GPU and no CUDA toolkit needed. Builds only what it needs.
DEMO = bin/towline bin/towlined lib/libcuda.so.1 bench/towline-measure
demo: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD) $(DEMO)
	@python3 tools/cuda_header.py $(BUILD)/src/gen/cuda_abi.h $(BUILD)/include/cuda.h
	@BUILD=$(BUILD) sh examples/demo

# Every feature once, in the plain build. docs/testing.md says what is tested where.
test: test-tools
	@$(MAKE) --no-print-directory all
	@python3 tests/run --build $(BUILD) $(DRAWN)

check: test

# The same code under address and undefined-behaviour sanitizers, and under the thread sanitizer.
check-sanitizers: test-tools
	@$(MAKE) --no-print-directory all asan tsan
	@python3 tests/run --build $(BUILD) --trees asan,tsan $(DRAWN)

# In a guest, for what this machine's kernel may lack: tests/vm/README.md. Without QEMU all of it is skipped.
VM_QEMU = qemu-system-$(shell uname -m)
VM_PACKAGE = $(if $(findstring aarch64,$(VM_QEMU)),qemu-system-arm,qemu-system-x86)
check-vm: all
	@if ! command -v $(VM_QEMU) >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "missing: $(VM_QEMU); installing $(VM_PACKAGE)"; \
	    { $(APT) update && $(APT_INSTALL) $(VM_PACKAGE); } >/dev/null 2>&1 || echo "$(VM_PACKAGE) cannot be installed"; \
	fi
	@tests/vm/guest --build $(BUILD) --flavour plain build && tests/vm/guest --build $(BUILD) --flavour systemd build || true
	@TOWLINE_VM_KEEP=1 python3 tests/run --build $(BUILD) --suite vm; code=$$?; tests/vm/guest --build $(BUILD) stop; exit $$code

# What CI runs, with nothing drawn. docs/testing.md says how long it takes, and has its last result.
check-long:
	@.ci/run --long

# How far four calls travel inside the client, against their limits; compiles it once more.
check-moves: all
	@tools/moves.py --check $(BUILD)

# docs/api-status.md, from the table; a test says when it is old.
api-status:
	@tools/apigen/apigen.py --api api --status docs/api-status.md

examples: all
	@examples/run --towline $(BUILD)/bin/towline

bench: all
	@bench/run --build $(BUILD)

# Without symbols for a debugger; SYMBOLS=1 keeps them. The folder of the build remembers the prefix. (No variable is called
# STRIP: meson takes it for the program that strips.)
STRIPPED = $(if $(SYMBOLS),,--strip)
IN_DESTDIR = $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
install: all
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) && $(NINJA) -C $(BUILD)
	@meson install -C $(BUILD) --no-rebuild $(STRIPPED) $(IN_DESTDIR)

# With the same PREFIX and DESTDIR as `make install`.
uninstall: $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) && $(NINJA) -C $(BUILD) build.ninja >/dev/null
	@tools/uninstall.py $(BUILD) $(IN_DESTDIR)

# The sources of the commit that is checked out, as an archive; always the same bytes.
dist:
	@mkdir -p $(BUILD)
	@git -c 'safe.directory=*' archive --format=tar --prefix=$(DIST)/ HEAD | gzip -n >$(BUILD)/$(DIST).tar.gz
	@echo $(BUILD)/$(DIST).tar.gz

# Debian packages of this machine's kind, in $(BUILD)/deb: packaging/README.md.
DEB = $(BUILD)/deb
deb:
	@if ! command -v dh >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "missing: debhelper; installing it"; \
	    $(APT) update && $(APT_INSTALL) debhelper dpkg-dev >/dev/null; \
	fi
	@rm -rf $(DEB) && mkdir -p $(DEB)/towline/debian
	@$(MAKE) --no-print-directory install PREFIX=/usr DESTDIR=$(DEB)/towline/staged SYMBOLS= >$(DEB)/install.log || \
	    { cat $(DEB)/install.log >&2; exit 1; }
	@packaging/make-deb $(DEB) $(VERSION)

# A Python wheel for this machine's kind, in $(BUILD)/wheel: packaging/README.md.
wheel: all
	@python3 packaging/make-wheel $(BUILD) $(VERSION) $(BUILD)/wheel

# Images of server and client, in $(BUILD)/image: docs/guide/containers.md. As root.
image: deb
	@packaging/make-image $(DEB) $(BUILD)/image $(VERSION)

# The packages in a fresh Debian 12, and the images: as root, with a network. Takes minutes then.
check-packages: image
	@TOW_TESTS_PACKAGES=1 python3 tests/run --build $(BUILD) --only packages.debian

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan

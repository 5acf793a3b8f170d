# All targets need Go and a C compiler (for the race detector). The tests start private servers:
# Redis, PostgreSQL, MariaDB, Prometheus and HAProxy must be installed and need not run.
# .ci/need installs what is missing, or prints how to.

GO ?= go
# Each module is tested with the versions that its users get, not with those of the workspace.
export GOWORK := off
# Most tests wait, for servers or until a lease expires, so more tests than cores run at once. Only as
# many packages as cores do, since each starts servers and processes of its own.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PARALLEL := $(shell expr 2 \* $(CORES))
# The slowest packages start first.
LONG = ./pglock ./redislock
# Its tests read files in one goroutine. With the race detector they take ten times as long.
HOUSE = internal/house
# Each of its tests keeps many processes busy.
NEMESIS = internal/nemesis
# Without debugger tables a test binary is linked in a third of the time. Stack traces and reports of
# the race detector do not need them.
LINK = -ldflags=-w
# The target check runs go vet, on the same build as the tests.
TEST = $(GO) test -race $(LINK) -vet=off
# A program with the race detector sleeps for a second before it exits, in case another thread is
# about to report a race. The tests start many such programs.
export GORACE ?= atexit_sleep_ms=50
LINT = $(GO) tool -modfile=lab/tools/go.mod golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quick
quick: check lint ## while working: checks, lint, the core, the conformance suite with its mutants, one engine
	$(TEST) -p $(CORES) -parallel $(PARALLEL) . ./driver/... ./internal/hold/... ./memlock/... ./filelock/...
	$(GO) test $(LINK) -vet=off ./$(HOUSE)

.PHONY: test
test: check redis postgres mariadb prometheus shells languages haproxy ## all tests, with the race detector; CI runs this
	@$(MAKE) --no-print-directory -j 2 test-root test-others

# The two parts of test, which run at the same time. The second one has less to do, so fewer of its
# tests run at once.
# The tests of fencelockvet read the root module, which the test cache does not notice.
.PHONY: test-root test-others
test-root:
	$(TEST) -timeout 25m -p $(CORES) -parallel $(PARALLEL) $(LONG) $$($(GO) list ./... | grep -v -e '/$(HOUSE)$$')
test-others:
	cd cmd && $(TEST) -timeout 25m -p 1 -parallel $(CORES) $$($(GO) list ./... | grep -v -e '/$(NEMESIS)$$')
	cd cmd && $(TEST) -timeout 25m -parallel $(CORES) ./$(NEMESIS)
	$(GO) test $(LINK) -vet=off ./$(HOUSE) ./internal/testkit/sim ./internal/testkit/twin ./internal/testkit/explore
	$(GO) test $(LINK) -vet=off -run 'Explore|Walk' ./recordlock ./internal/quorum
	$(GO) test -C cmd/fencelockvet -count=1 ./...
	cd fence/fencegrpc && $(TEST) ./...
	cd observe/otelfencelock && $(TEST) ./...
	cd observe/promfencelock && $(TEST) ./...
	cd stores/natsrecords && $(TEST) ./...
	cd cron/schedulers && $(TEST) ./...
	$(GO) test -C lab $(LINK) -vet=off -parallel $(CORES) ./picture/... ./evidence/... ./bench/clients ./foreign
	cd examples/service && $(TEST) ./...
	$(GO) test -C lab/tools/dist ./internal/... ./deploy

.PHONY: windows
windows: browser prometheus redis ## what people see: opens pages in Chromium, scrapes a service with Prometheus
	@$(MAKE) --no-print-directory -j 2 windows-browser windows-board

# The browser computes while the board waits for its alerts.
.PHONY: windows-browser windows-board
windows-browser:
	$(GO) test -C lab $(LINK) -vet=off -count=1 -timeout 10m ./browser
windows-board:
	$(GO) test -C lab $(LINK) -vet=off -count=1 -timeout 5m ./board

.PHONY: check
check: cc size apidiff ## gofmt, go vet, type checks for macOS, the size of the command, the API
	@bad=$$(gofmt -l .); test -z "$$bad" || { echo "not formatted (try: gofmt -w .):"; echo "$$bad"; exit 1; }
	$(GO) vet -race ./...
	$(GO) vet -C cmd -race ./...
	$(GO) vet -C lab ./bench ./bench/clients ./bench/suites ./picture/... ./evidence/... ./foreign ./browser ./board
	$(GO) vet -C fence/fencegrpc -race ./...
	$(GO) vet -C observe/otelfencelock -race ./...
	$(GO) vet -C observe/promfencelock -race ./...
	$(GO) vet -C stores/natsrecords -race ./...
	$(GO) vet -C cron/schedulers -race ./...
	$(GO) vet -C stores/etcdrecords -race ./...
	$(GO) vet -C examples/service -race ./...
	$(GO) vet -C cmd/fencelockvet ./...
	$(GO) vet -C lab/tools/dist ./internal/...
	$(GO) run -C lab/tools ./typecheck darwin ../.. ../../cmd

.PHONY: apidiff
apidiff: ## the API is compatible with the last version tag, if there is one
	@GO="$(GO)" .ci/apidiff

.PHONY: size
size: ## the command is no larger than 15 MB; the tags of a release make it smaller
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) build -C cmd -ldflags='-s -w' -o "$$dir/fencelock" ./fencelock && \
	size=$$(wc -c <"$$dir/fencelock") && echo "the command has $$size bytes" && test "$$size" -le 15000000

.PHONY: man
man: ## the manual pages, in the directory man
	mkdir -p man && $(GO) run -C cmd ./mandoc "$(CURDIR)/man"

DIST = $(GO) run -C lab/tools/dist .
# The version of a release, such as v1.2.3. By default it is the tag of the commit.
VERSION ?=

.PHONY: dist dist-test image modules publish
dist: ## archives, packages, images, SBOMs and checksums of a release, in the directory dist
	$(DIST) packages -version "$(VERSION)"
dist-test: redis ## builds a release twice, installs its packages and runs them; needs root for all of it
	@timeout 300 .ci/need packages || echo "fencelock: some tests of packages are skipped"
	$(GO) vet -C lab/tools/dist ./...
	$(GO) test -C lab/tools/dist -count=1 -timeout 30m ./...
modules: ## nested modules require the root module of VERSION, without replace; prints the tags to push
	$(DIST) modules -version "$(VERSION)"
publish: ## the files in dist become a draft of the release VERSION on GitHub; needs gh
	gh release create "$(VERSION)" --draft --verify-tag --title "fencelock $(VERSION)" dist/*
image: ## the build context of a container image, in the directory dist/image
	$(DIST) image -version "$(VERSION)"

.PHONY: lint
lint: ## golangci-lint; compiles it first, which takes minutes once
	$(LINT) run
	cd cmd && $(GO) tool -modfile=../lab/tools/go.mod golangci-lint run

.PHONY: mutants
mutants: cc ## deliberately broken engines and decisions, each with what finds it
	$(GO) test -race -count=1 -v -run 'Mutant' ./driver/drivertest/
	FENCELOCK_SLOW=1 $(GO) test -count=1 -v -run '^(Test|TestExplore)Mutants$$' ./recordlock ./internal/testkit/twin ./internal/quorum

# The steps take minutes the first time, and tens of minutes on a slow machine.
.PHONY: kube
kube: ## kuberecords on a real kube-apiserver, which this builds, and beside the leader election of client-go
	cd lab/kube && dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) build -ldflags='-s -w' -o "$$dir/etcd" go.etcd.io/etcd/server/v3 && \
	$(GO) build -ldflags='-s -w' -o "$$dir/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver && \
	$(GO) vet . && KUBE_BIN="$$dir" $(GO) test $(LINK) -count=1 -timeout 60m -v .

.PHONY: slow
slow: cc redis postgres haproxy minio ## repeat engine and fault tests many times, to find rare failures
	$(GO) test -race -count=20 -timeout 60m ./filelock/... ./internal/faults/...
	$(GO) test -race -count=5 -timeout 120m ./redislock/... ./pglock/... ./internal/testkit/...
	FENCELOCK_SLOW=1 $(GO) test -count=1 -timeout 60m -run "Hot|Timer|ThousandsOfLocks" . ./internal/schedule ./pglock
	FENCELOCK_SLOW=1 $(GO) test -race -count=1 -timeout 60m -run Twin ./redislock
	FENCELOCK_SLOW=1 $(GO) test -race -p 1 -timeout 120m ./driver/drivertest ./internal/testkit/engines ./redlock/... ./cron/... ./election/... ./semaphore/... ./idempotent/... ./optimistic/... ./ratelimit/... ./examples/...
	cd cmd && FENCELOCK_SLOW=1 $(GO) test -race -p 1 -timeout 120m $$($(GO) list ./... | grep -v -e '/$(NEMESIS)$$')
	FENCELOCK_SLOW=1 $(GO) test -count=1 -timeout 60m -run "Hot|Pairs" ./pglock
	FENCELOCK_SLOW=1 $(GO) test -count=1 -timeout 60m -v ./internal/testkit/wakemodel
	FENCELOCK_SLOW=1 $(GO) test -count=1 -timeout 60m -run "TestLocks|TestCostOfWaiters|TestHolderGone" ./stores/sqlrecords ./stores/pgrecords ./redislock ./recordlock ./stores/kuberecords ./stores/s3records
	FENCELOCK_SLOW=1 $(GO) test -C cmd -timeout 240m -v ./$(NEMESIS)
	FENCELOCK_SLOW=1 $(GO) test -C lab -count=1 -timeout 60m -v ./bench/clients
	FENCELOCK_SLOW=1 $(MAKE) stores kube

# etcd and NATS take some minutes to compile. The tests start them as children of the test binary.
.PHONY: stores
stores: ## the tests of records in etcd and NATS, with clusters of both
	$(GO) vet -C lab ./storetests
	$(GO) test -C lab $(LINK) -vet=off -count=1 -parallel $(PARALLEL) -timeout 60m ./storetests

# The first step compiles MinIO, which takes minutes once. FENCELOCK_MINIO=/path/minio uses another one.
.PHONY: minio
minio: cc ## locks on a real MinIO, which is compiled first, and measurements
	test -n "$$FENCELOCK_MINIO" || $(GO) build -C lab/minio github.com/minio/minio/cmd
	$(GO) vet -C lab/minio .
	$(GO) test -C lab/minio $(LINK) -count=1 -timeout 30m -v .

# The emulators come from npm and from a Go module, once. FENCELOCK_CLOUDS=/path uses others.
.PHONY: clouds
clouds: export FENCELOCK_CLOUDS ?= $(CURDIR)/.bin/clouds/node_modules/.bin
clouds: cc ## the suite and a nemesis on emulators of Azure, Google's and Amazon's stores (Azurite, fake-gcs-server, dynalite)
	test -x "$$FENCELOCK_CLOUDS/dynalite" || npm install --no-audit --no-fund --prefix .bin/clouds azurite@3.37.0 dynalite@4.0.0
	test -x "$$FENCELOCK_CLOUDS/fake-gcs-server" || GOBIN="$$FENCELOCK_CLOUDS" $(GO) install github.com/fsouza/fake-gcs-server@v1.56.1
	$(GO) vet -C lab ./clouds
	$(GO) test -C lab $(LINK) -vet=off -count=1 -timeout 30m -v ./clouds

.PHONY: matrix
matrix: cc redis ## the Redis tests on each installed server, and on REDIS="/path/redis-server ..."
	@.ci/matrix $(REDIS)

# twemproxy (nutcracker) is used if it is installed.
.PHONY: environments
environments: cc redis postgres haproxy ## proxies, poolers, removed commands, settings of roles, slow clocks: a table. Minutes
	$(GO) test $(LINK) -count=1 -timeout 20m -parallel $(PARALLEL) -run '^TestEnvironments$$' ./internal/testkit/environments -environments

.PHONY: guarantees
guarantees: cc redis postgres ## the tests with a verdict; writes the tables of docs/guarantees.md and failures. Needs root
	$(GO) test -count=1 -timeout 60m -run '^TestGuarantees$$' ./internal/house -guarantees

.PHONY: docs
docs: ## writes what the pages have from internal/catalog: tables and paragraphs about engines
	$(GO) test -count=1 -run '^TestPagesAreWritten$$' ./internal/house -write

.PHONY: sim sim-long
sim: ## two minutes of simulated faults on the deciding code of Redlock, with a table
	$(GO) run -C lab ./sim -events 1000000000
sim-long: ## the same, five times as long
	$(GO) run -C lab ./sim -events 5000000000

.PHONY: explore
explore: ## every state of the deciding code up to large bounds, and random walks: a quarter of an hour
	FENCELOCK_SLOW=1 FENCELOCK_WALK=10000000 $(GO) test $(LINK) -vet=off -count=1 -p 1 -timeout 120m -v -run 'Explore|Walk|Specification' -skip Mutants ./internal/testkit/twin ./recordlock ./internal/quorum ./internal/testkit/explore

.PHONY: chaos soak
chaos: cc redis postgres mariadb ## ten minutes of faults on real servers of all engines, with tables and pages
	@.ci/chaos
soak: cc redis postgres mariadb ## the same until a million acquisitions are checked, which takes an hour
	@.ci/chaos 1000000

.PHONY: bench bench-quick
bench: redis postgres ## this library beside its peers; writes lab/bench/results.md
	$(GO) run -C lab ./bench
	$(GO) run -C lab ./picture/cmd/picture "$(CURDIR)/docs"
bench-quick: redis postgres ## five rows in two minutes, beside the last commit
	$(GO) run -C lab ./bench quick

EVIDENCE = $(GO) run -C lab ./evidence/cmd/evidence
.PHONY: peers suites evidence page
peers: redis postgres ## published faults of other libraries, reproduced; when libraries report a loss
	$(GO) vet -C lab ./bench/peers
	$(GO) test -C lab ./bench/peers
	$(GO) run -C lab ./bench/peers -json "$(CURDIR)/docs/evidence/faults.json"
	$(GO) run -C lab ./bench/peers -compare -json "$(CURDIR)/docs/evidence/comparison.json"
suites: redis ## test suites of other projects, run on fencelock
	$(GO) vet -C lab ./bench/suites
	$(GO) run -C lab ./bench/suites -json "$(CURDIR)/docs/evidence/suites.json"
evidence: cc redis postgres mariadb peers suites ## measures everything on docs/evidence.md but the soak, in three hours; writes the page
	$(EVIDENCE) suite
	$(EVIDENCE) sim -events 1000000000
	$(EVIDENCE) explore -large
	$(EVIDENCE) nemesis -for 5m
	$(EVIDENCE) page
page: ## writes docs/evidence.md from the files in docs/evidence
	$(EVIDENCE) page

# The data of handover, turns and cost are measured, those of frozen and failover are runs of real
# processes, and that of demo is its output: docs/pictures/README.md.
.PHONY: pictures
pictures: ## draw docs/pictures/*.svg again, from the data next to them
	$(GO) run -C lab ./picture/cmd/picture "$(CURDIR)/docs"

# Without these shells, tests of completion are skipped and say so.
.PHONY: shells
shells:
	@timeout 180 .ci/need shells || echo "fencelock: some tests of completion are skipped"

# Without these, tests of clients in other languages are skipped and say so.
.PHONY: languages
languages:
	@timeout 300 .ci/need languages || echo "fencelock: some tests of clients are skipped"

.PHONY: cc redis postgres mariadb prometheus browser haproxy
cc redis postgres mariadb prometheus browser haproxy:
	@.ci/need $@

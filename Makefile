# `make serve` and `make test` are all that a fresh Debian machine needs: they install what is missing.

DATA ?= furrow-data
DEVICE ?= emu:$(DATA)/drive.img?zones=256&zone-size=64MiB
PORT ?= 6379
HTTP ?= 127.0.0.1:9121
WAL ?= auto

.DEFAULT_GOAL := help
.PHONY: help serve demo demo-array demo-cluster test stock leveldb prio clients cluster zookeeper crash fuzz guest lint bench release

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile

serve: release ## a key-value server, its data in the zones of an emulated drive in ./furrow-data
	@mkdir -p '$(DATA)'
	@echo
	@echo "Starting; wait for the line that begins with 'ready'. Then any redis client talks to it, in another terminal:"
	@echo "    redis-cli -p $(PORT) set greeting hello"
	@echo "    redis-cli -p $(PORT) get greeting"
	@echo "Stop it with Ctrl-C or with kill -9: what was acknowledged is there at the next make serve."
	@echo
	@exec target/release/furrow serve --device '$(DEVICE)' --port '$(PORT)' --http '$(HTTP)' --wal '$(WAL)'

demo: release ## load this machine's package lists, pull the plug, look for what was lost
	@exec target/release/furrow demo --directory '$(DATA)'

demo-array: release ## the same on an array of five drives: one fails, is replaced and rebuilt, then another one fails
	@exec target/release/furrow demo-array --directory '$(DATA)'

demo-cluster: release ## etcd and five servers: a load, a primary, a backup and a witness killed in turn, every record compared
	@exec scripts/demo-cluster.sh target/release/furrow

test: ## every test, the stock programs, the crash explorer, a stock kernel in a guest
	@exec scripts/test.sh

stock: ## only the stock programs: redis-cli, redis-benchmark, db_bench, ldb, sst_dump
	@exec scripts/stock.sh

leveldb: ## only LevelDB's programs: plyvel's tests, LevelDB's own tests, db_bench, Minetest's server, Litecoin's daemon
	@exec scripts/leveldb.sh

prio: ## only programs under prio run: PostgreSQL, redis, ZooKeeper
	@exec scripts/prio.sh

clients: ## only stock clients of Redis Cluster against redis-server and a cluster of Furrow
	@exec scripts/clients.sh

cluster: ## only a cluster whose processes are killed in turn under load
	@exec scripts/cluster.sh

zookeeper: ## only a ZooKeeper ensemble of three under prio run, with zk turns
	@exec scripts/zookeeper.sh

crash: ## only the crash explorer
	@exec scripts/crash.sh

fuzz: ## only the fuzz targets, 4 s each: SECONDS_EACH=3600 make fuzz for longer
	@exec scripts/fuzz.sh

guest: ## only the kernel backends, on a stock Debian kernel in QEMU
	@exec scripts/guest.sh

lint: ## formatting, clippy, layering, newer headers
	@exec scripts/lint.sh

bench: ## the device contract's cost, then beside tmpfs and redis-server; wants a quiet machine
	@scripts/setup.sh test
	@scripts/cargo bench --locked -p furrow-bench
	@exec scripts/compare.sh

release: ## build the program and the libraries for RocksDB's, LevelDB's and any programs, optimised
	@scripts/setup.sh
	@scripts/cargo build --release --locked -p furrow-cli -p furrow-plugin -p furrow-leveldb -p furrow-hook -p furrow-prio -p furrow-logs-c

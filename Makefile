# Every target works alone on a fresh clone with Python 3.11+ and the package registries.
# `make` or `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := kraftpy jepsen_tests spark tests bench
# Where the tests look for it too; KRAFTPY_CACHE puts it elsewhere.
SPARK_JARS = $(or $(KRAFTPY_CACHE),$(HOME)/.cache/kraftpy)/kafka-connector-of-spark-4.2.0

.DEFAULT_GOAL := help
.PHONY: help up setup test lint types layers unit unit-others unit-with-spark times format bench crash sim exam exam-processes jepsen spark spark-faults spark-jars clean night fuzz mutants

help:  ## list what can be made
	@sed -nE 's/^([a-z][a-z -]*):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 36

# Two stamps: what a node needs, and what the tests need on top of it.
$(VENV)/.node: pyproject.toml constraints.txt
	@echo "make: installing what a node needs into $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("kraftpy needs Python 3.11 or newer; run: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@$(BIN)/python -m compileall -q kraftpy
	@touch $@

$(VENV)/.test: $(VENV)/.node pyproject.toml constraints.txt
	@echo "make: installing what the tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,spark]'
	@$(BIN)/python -m compileall -q jepsen_tests spark
	@touch $@

up: $(VENV)/.node  ## launch a 3-node quorum in the foreground, ready for any Kafka client
	@$(BIN)/kraftpy up

setup: $(VENV)/.test  ## install everything that tests and checks need into .venv

# Spark's tests have the machine to themselves: beside them the others take as much longer, and what waits for a
# real client's time-outs fails.
test: lint layers  ## everything that .ci/run checks: lint, types, layers, tests
	@$(MAKE) --no-print-directory -j2 types unit-others
	@$(MAKE) --no-print-directory unit-with-spark

lint: $(VENV)/.test  ## ruff: style, trio's ASYNC rules, no way around kraftpy/world
	@echo "make: lint"
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.test  ## mypy --strict on everything but the tests
	@echo "make: types"
	@$(BIN)/mypy

layers: $(VENV)/.test  ## import-linter: imports point down the rooms of the design
	@echo "make: layers"
	@$(BIN)/lint-imports --no-logo

unit: $(VENV)/.test  ## the whole test suite, in parallel; ends with the ten slowest tests
	@$(MAKE) --no-print-directory unit-others
	@$(MAKE) --no-print-directory unit-with-spark

unit-others: $(VENV)/.test
	@echo "make: tests"
	@$(BIN)/python -m pytest -n auto --dist worksteal -q --ignore tests/spark

# In one process, for one session of Spark.
unit-with-spark: $(VENV)/.test
	@echo "make: tests with Spark"
	@$(BIN)/python -m pytest -q tests/spark

times: $(VENV)/.test  ## is kept what is promised about real time? On a machine that does nothing else
	@echo "make: times"
	@KRAFTPY_TIMES=1 $(BIN)/python -m pytest tests/cluster tests/raft/test_raft_driver_real.py tests/verify/test_checker_costs.py -q -rP

format: $(VENV)/.test  ## rewrite the sources in the house style
	@$(BIN)/ruff check --fix --quiet $(SOURCES); $(BIN)/ruff format $(SOURCES)

bench: $(VENV)/.test  ## measure, and print ratios to the peers in the same run
	@echo "make: benchmarks"
	@$(BIN)/python -m bench

crash: $(VENV)/.test  ## every crash of the log that can be enumerated: some minutes; a sample is in make test
	@echo "make: crash states, workload by workload; about ten minutes on two cores"
	@KRAFTPY_CRASH=all $(BIN)/python -m pytest tests/log/crash -n auto --dist worksteal -v --timeout=0

# The seeds of both begin at a number made of the commit: nobody can tune the product to them.
SEEDS ?= 200
FIRST_SEED = $$((0x$$(git rev-parse --short=7 HEAD)))
WHOLE_SEEDS ?= 20
sim: $(VENV)/.test  ## all simulations: WHOLE_SEEDS whole clusters (20), SEEDS of each kernel (200), everything checked
	@for level in quorum cluster coordinators logs requests; do \
	  echo "make: simulating $$level, $(SEEDS) seeds"; \
	  $(BIN)/kraftpy sim run --level $$level --seeds $(SEEDS) --first-seed $(FIRST_SEED) --jobs 2 || exit 1; done
	@echo "make: simulating whole clusters, $(WHOLE_SEEDS) seeds of a minute"
	@$(BIN)/kraftpy sim run --seeds $(WHOLE_SEEDS) --first-seed $(FIRST_SEED) --jobs 2

exam: $(VENV)/.test  ## does the simulation find every seeded bug within 500 seeds?
	@echo "make: the exam"
	@$(BIN)/python tests/bugs/exam.py --first-seed $$((0x$$(git rev-parse --short=7 HEAD)))

exam-processes: $(VENV)/.test  ## does the Jepsen-style suite find seeded bugs in real nodes, within five minutes each?
	@echo "make: the exam of the process suite; about half an hour"
	@$(BIN)/python tests/bugs/process_exam.py --seed $(FIRST_SEED)

spark-jars: $(SPARK_JARS)/pom.xml  ## fetch Spark's own Kafka connector with Maven; spark.jars takes what it prints
	@ls $(SPARK_JARS)/*.jar | paste -s -d ,

# The pom is copied last: where it is, the jars are.
$(SPARK_JARS)/pom.xml: spark/jars/pom.xml
	@command -v mvn > /dev/null || { echo "make: Maven (mvn) is missing; in Debian: apt-get install maven" >&2; exit 1; }
	@echo "make: fetching Spark's Kafka connector into $(SPARK_JARS)" >&2
	@mvn -B -q -f $< org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=$(SPARK_JARS) >&2
	@cp $< $@

spark: $(VENV)/.test  ## clicks through three nodes into a lake of Parquet, with PySpark: prints lag and audit
	@$(BIN)/kraftpy-ingest demo --master 'local[2]'

# Seeds begin at a number made of the commit. A large one: SPARK_FAULTS="--seeds 1 --gigabytes 2".
SPARK_FAULTS ?= --seeds 40
spark-faults: $(VENV)/.test  ## exactly once while brokers, drivers and tasks of Spark fail: 40 schedules
	@PYTHONPATH=tests:. $(BIN)/python tests/spark/fault_schedules.py --first-seed $$((0x$$(git rev-parse --short=7 HEAD))) $(SPARK_FAULTS)

JEPSEN_SEED ?= $$((0x$$(git rev-parse --short=7 HEAD)))
jepsen: $(VENV)/.test  ## real nodes, clients and faults for five minutes, and a verdict on each of four workloads
	@echo "make: the Jepsen-style suite, four runs of 40 s and what belongs to them"
	@$(BIN)/python -m jepsen_tests run --workload list-append,queue-txn,eos-copy,metadata --nemesis partition,kill --client own,librdkafka --time 40 --quick --seed $(JEPSEN_SEED)

# A hundredth of a night: make night NIGHT="--scale 0.01".
NIGHT ?=
night: $(VENV)/.test  ## a night of simulation, process runs, fuzzing and losses of power: eight hours, and totals
	@$(BIN)/python -m jepsen_tests tier night $(NIGHT)

FUZZ ?= --seconds 300
fuzz: $(VENV)/.test  ## bytes that are almost right, for decoders and files: five minutes
	@$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

MUTANTS ?=
mutants: $(VENV)/.test  ## which small changes of the cores do the tests notice? Some minutes
	@$(BIN)/python tests/mutants/mutants.py $(MUTANTS)

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

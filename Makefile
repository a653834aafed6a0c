# Chores by short names. Each is one `cargo xtask` away; see `cargo xtask --help` for the rest.

.PHONY: help demo dist test test-query corpus torture bench lab fuzz tidy

help:
	@echo 'make demo     install a server, record it under load, show where its time went'
	@echo 'make test     everything that CI runs: format, lints, tests, torture, corpus (smoke)'
	@echo 'make test-query  SQL and the cluster, whose engine takes long to build'
	@echo 'make corpus   all programs, plain and recorded (installs packages; takes long)'
	@echo 'make torture  the torture program in all builds and modes'
	@echo 'make bench    probe effect next to other tools, and lifting speed'
	@echo 'make lab      the kernel lab: build, boot, find its races, measure its locks'
	@echo 'make fuzz     every fuzz target for a minute'
	@echo 'make dist     the release binary, its debug information, Debian packages'
	@echo 'make tidy     checks on the text of the repository'

dist:
	@cargo xtask dist

demo:
	@cargo xtask demo

test:
	@cargo xtask ci

test-query:
	@cargo xtask query

corpus:
	@cargo xtask corpus --jobs 2

torture:
	@cargo xtask torture

lab:
	@cargo xtask lab

bench:
	@cargo xtask bench probe
	@cargo xtask bench lift

fuzz:
	@cargo xtask fuzz

tidy:
	@cargo xtask tidy

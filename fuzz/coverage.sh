#!/usr/bin/env bash
# The compiler with the coverage that libFuzzer follows, which is what cargo-fuzz sets, and with debug assertions.
# Called as `coverage.sh echo` it prints the flags.
case " $* " in
*" cascadia_kernels "*) exec "$@" -Copt-level=0 ;; # arithmetic: it parses nothing, and takes long to optimise
*) exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on --cfg=fuzzing ;;
esac

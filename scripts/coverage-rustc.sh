#!/usr/bin/env bash
# The compiler with libFuzzer's instrumentation, for scripts/fuzz.sh. Cargo calls it for the workspace's own crates only
# (RUSTC_WORKSPACE_WRAPPER): what they depend on is built once for tests and fuzz targets. Build scripts are not
# instrumented, since they link without libFuzzer's runtime.
case " $* " in
  *" --crate-name build_script_build "* | *" --crate-name ___ "*) exec "$@" ;;
  *" --crate-name "*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
  *) exec "$@" ;;
esac

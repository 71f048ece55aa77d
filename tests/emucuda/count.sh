#!/usr/bin/env bash
# Counts what a step of large presets asks of a GPU, and holds it against budgets.toml. By hand; five minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
made=$PWD/target/emucuda
mkdir -p "$made"
for preset in llama-150m llama-1b finch-1b6; do
    rm -f "$made/count" "$made/report"
    EMUCUDA_PRESET=$preset EMUCUDA_COUNT=$made/count EMUCUDA_REPORT=$made/report EMUCUDA_BYTES=150000000000 \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$PWD/tests/emucuda/run.sh \
        cargo test --release --features intellect-node/cuda,intellect-node/wgpu --test cuda -- --nocapture a_step_asks
done

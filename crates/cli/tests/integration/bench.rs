//! Tests of the output of the benchmark commands, and of the arguments that they refuse.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const DRIVE: &str = "emu:mem?profile=zn540&zones=24&zone-size=4MiB";

fn furrow(args: &str) -> Output {
    // A command that hangs fails its test instead of hanging it.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_furrow")]).args(args.split(' '));
    command.env_remove("FURROW_DEVICE").env_remove("FURROW_LOG").stdin(Stdio::null());
    command.output().expect("timeout comes with coreutils")
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn done(args: &str) -> String {
    let output = furrow(args);
    assert!(output.status.success(), "{args}: {:?}\n{}", output.status, stderr_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn json(args: &str) -> Value {
    serde_json::from_str(&done(args)).expect("JSON")
}

/// Checks lists of refused arguments of a command: each comes with a word of the error message.
#[track_caller]
fn refused(command: &str, lines: &[(&str, &str)]) {
    for (flags, word) in lines {
        let args = format!("{command} {flags}");
        let output = furrow(&args);
        assert_eq!(output.status.code(), Some(2), "{args}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains(word), "{args}: '{word}' is not in: {}", stderr_of(&output));
    }
}

#[track_caller]
fn has_numbers(value: &Value, names: &[&str]) {
    for name in names {
        let number = name.split('.').fold(value, |value, part| &value[part]);
        assert!(number.as_f64().is_some_and(|number| number > 0.0), "{name} is {number} in {value}");
    }
}

#[test]
fn a_device_bench_with_contradicting_arguments_is_refused() {
    refused(
        &format!("device bench -d {DRIVE}"),
        &[
            ("--op erase", "'erase'"),
            ("--op mixed=101", "0 to 100"),
            ("--block many", "'many'"),
            ("--block 5000", "whole blocks"),
            ("--block 4MiB", "one operation"),
            ("--depth 0", "depth"),
            ("--op write --depth 4", "one write at a time"),
            ("--op append --zones 2", "raise the depth"),
            ("--op append --depth 20 --zones 20", "open or active"),
            ("--zones 25", "zones"),
            ("--zones 0", "zones"),
            ("--count 0", "count"),
            ("--count 1000000", "no room"),
            ("--count 1 --total 1MiB", "--total"),
            ("--total 100", "count"),
            ("--time soon", "'soon'"),
            ("--time 0s", "above 0"),
            ("--rate 0", "above 0"),
            ("--clock fast", "dilated=N"),
            ("--clock dilated=0", "dilated=N"),
        ],
    );
    refused(
        "device bench",
        &[
            ("-d emu:mem?profile=zn540&dilated=3 --clock dilated=4", "dilated=3"),
            ("-d emu:mem?profile=zn540&dilated=3 --clock real", "dilated=3"),
            ("-d emu:mem --clock virtual", "take no time"),
            ("-d blk:/dev/nvme0n1 --clock virtual", "real clock"),
            ("--op read", "--device"),
        ],
    );
}

#[test]
fn a_wal_bench_with_contradicting_arguments_is_refused() {
    refused(
        &format!("bench wal -d {DRIVE}"),
        &[
            ("--io fast", "append"),
            ("--batch some", "'some'"),
            ("--sync every=0", "every=0"),
            ("--sync often", "'often'"),
            ("--threads 0", "0 threads"),
            ("--record 0", "a record of 0"),
            ("--buffer 0", "buffer"),
            ("--window 0", "a window of 0"),
            ("--window 5000", "1 to 1024"),
            ("--barrier far", "'far'"),
            ("--total 4000", "not one record"),
            ("--roll 0", "a log has"),
            ("--grid --record 4KiB", "--record"),
            ("--clock dilated=x", "dilated=N"),
        ],
    );
    refused(
        "bench wal",
        &[
            ("-d emu:mem?dilated=3 --clock dilated=4", "dilated=3"),
            ("-d emu:mem --clock virtual", "take no time"),
            ("-d nvme:/dev/ng0n1 --clock dilated=2", "real clock"),
        ],
    );
}

#[test]
fn a_ycsb_run_with_contradicting_arguments_is_refused() {
    refused(
        &format!("bench ycsb -d {DRIVE}"),
        &[
            ("--workload g", "'g'"),
            ("--workload c..a", "c..a"),
            ("--workload a", "begin with load"),
            ("--records 0", "one at least"),
            ("--ops 0", "one at least"),
            ("--value long", "'long'"),
            ("--threads 0", "0 threads"),
            ("--distribution normal", "'normal'"),
            ("--rate 0", "above 0"),
            ("--sync every=2", "each"),
            ("--log-io fast", "append"),
            ("--log-window 0", "a window of 0"),
            ("--log-buffer 0", "buffer"),
            ("--clock virtual", "virtual clock"),
            ("--engine bolt", "rocksdb, leveldb"),
            ("--cache-mode half", "buffered"),
            ("--memory 1MiB", "memtables and block cache take 320 MiB"),
            ("--memory 1GiB --cache 64MiB", "one of the two"),
            ("--cache 64MiB --cache-mode engine", "buffered and direct alone"),
            ("--memory 1GiB --cache-mode off", "leave the memory out"),
            ("--memory 1GiB --block-cache 8MiB --cache-mode engine", "one of the two"),
            ("--engine leveldb --cache-mode engine-prepopulated", "use the mode engine"),
        ],
    );
}

#[test]
fn a_kv_run_with_contradicting_arguments_is_refused() {
    refused(
        &format!("bench kv -d {DRIVE}"),
        &[
            ("--wal some", "'some'"),
            ("--wal base --io append", "base writes"),
            ("--io fast", "append"),
            ("--threads 0", "0 threads"),
            ("--value long", "'long'"),
            ("--value 65MiB", "up to"),
            ("--mix write=90", "90 %"),
            ("--mix erase=100", "'erase=100'"),
            ("--mix mixgraph-none", "prefix-dist"),
            ("--distribution latest", "uniform or zipfian"),
            ("--distribution normal", "'normal'"),
            ("--records 0", "one at least"),
            ("--ops 0", "one at least"),
            ("--sync often", "each"),
            ("--slowest 10001", "up to"),
            ("--interval 0s", "1 ms at least"),
            ("--interval 1us", "1 ms at least"),
            ("--wal auto --io write", "auto appends"),
            ("--interval soon", "'soon'"),
            ("--write-buffers 1", "2 to 64"),
            ("--background-jobs 0", "1 to 256"),
            ("--write-buffer 1KiB", "least"),
            ("--clock virtual", "virtual clock"),
        ],
    );
}

#[test]
fn a_recovery_bench_with_contradicting_arguments_is_refused() {
    refused(
        &format!("bench recovery -d {DRIVE}"),
        &[
            ("--runs 0", "--runs"),
            ("--buffer 0", "buffer"),
            ("--sizes 0", "fewer"),
            ("--sizes 1MiB,1GiB", "room"),
            ("--sizes 1MiB --scratch /nosuch", "/nosuch"),
        ],
    );
}

#[test]
fn a_ycsb_run_without_records_leaves_the_drive_unchanged() {
    let directory = TempDir::new().expect("a directory");
    let url = format!("emu:{}?zones=24&zone-size=1MiB&cache=volatile", directory.path().join("d").display());
    done(&format!("fs mkfs -d {url}"));
    refused(&format!("bench ycsb -d {url}"), &[("--workload c", "run load first")]);
    assert!(!done(&format!("fs ls -d {url} /")).contains("ycsb"));
}

#[test]
fn refused_arguments_make_no_drive_file_and_data_is_overwritten_only_with_consent() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("drive.img");
    let url = format!("emu:{}?zones=24&zone-size=1MiB&cache=volatile", file.display());
    for args in
        ["device bench --block 5000", "bench wal --record 0", "bench ycsb --records 0", "bench kv --ops 0"]
    {
        assert_eq!(furrow(&format!("{args} -d {url}")).status.code(), Some(2), "{args}");
        assert!(!file.exists(), "{args}");
    }
    for args in ["device bench --op read", "bench ycsb --workload c"] {
        assert!(!furrow(&format!("{args} -d {url}")).status.success(), "{args}");
        assert!(!file.exists(), "{args}");
    }
    done(&format!("bench wal --total 1MiB -d {url}"));
    for args in ["device bench", "bench wal --total 1MiB", "bench ycsb --records 10", "bench kv --ops 10"] {
        let output = furrow(&format!("{args} -d {url}"));
        assert_eq!(output.status.code(), Some(1), "{args}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains("--force"), "{args}: {}", stderr_of(&output));
    }
    done(&format!("device bench --op read --count 64 -d {url}"));
    done(&format!("bench wal --total 1MiB --force -d {url}"));
}

#[test]
fn a_device_bench_prints_its_results_and_its_settings() {
    let result = json(&format!("device bench -d {DRIVE} --op append --block 8KiB --depth 4 --json"));
    has_numbers(
        &result,
        &["operations", "seconds", "ops_per_s", "mib_per_s", "latency_us.p99_9", "host.cores"],
    );
    assert_eq!((&result["clock"], &result["dilation"]), (&Value::from("virtual"), &Value::from(1)));
    assert_eq!((&result["op"], &result["block"]), (&Value::from("append"), &Value::from(8192)));
    let again = json(&format!("device bench -d {DRIVE} --op append --block 8KiB --depth 4 --json"));
    assert_eq!(again, result, "virtual time repeats exactly");
    let slow = json(&format!("device bench -d {DRIVE}&dilated=2 --count 200 --json"));
    assert_eq!((&slow["clock"], &slow["dilation"]), (&Value::from("dilated=2"), &Value::from(2)));
}

#[test]
fn a_wal_bench_prints_its_results_beside_the_limit_of_the_drive() {
    for flags in ["--io append --threads 4 --batch each --sync each", "--io write --batch group --roll 3MiB"]
    {
        let result = json(&format!("bench wal -d {DRIVE} {flags} --total 8MiB --buffer 16KiB --json"));
        has_numbers(
            &result,
            &[
                "records",
                "seconds",
                "ops_per_s",
                "payload_mib_per_s",
                "latency_us.max",
                "appends",
                "write_amplification",
                "device_limit.ops_per_s",
                "device_limit.mib_per_s",
                "of_limit",
                "of_raw",
                "device_operations.bytes",
                "logs",
                "host.cores",
            ],
        );
        for (name, value) in [("record", 4096), ("buffer", 16_384), ("window", 64), ("total", 8 << 20)] {
            assert_eq!(result[name], Value::from(value), "{name}");
        }
        assert_eq!((&result["clock"], &result["dilation"]), (&Value::from("virtual"), &Value::from(1)));
        assert_eq!(result["of_writers"].is_number(), flags.contains("sync"), "{flags}");
        assert!(result["write_amplification"].as_f64() > Some(1.0), "{result}");
    }
}

#[test]
fn a_ycsb_run_reports_each_kind_of_operation_and_the_opening_apart() {
    let args = "--workload load,a,e --records 2000 --ops 400 --value 100 --threads 2 --json";
    let result = json(&format!("bench ycsb -d {DRIVE} {args}"));
    let phases = result["phases"].as_array().expect("a list");
    assert_eq!(phases.len(), 3);
    has_numbers(&phases[0], &["open_seconds"]);
    for (phase, kinds) in phases.iter().zip([&["insert"][..], &["read", "update"], &["insert", "scan"]]) {
        has_numbers(phase, &["seconds", "operations", "ops_per_s"]);
        assert_eq!(phase["missing"], Value::from(0));
        let found: Vec<&str> = phase["kinds"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|kind| kind["operation"].as_str())
            .collect();
        assert_eq!(found, kinds);
        let count: u64 =
            phase["kinds"].as_array().expect("a list").iter().filter_map(|kind| kind["count"].as_u64()).sum();
        assert_eq!(Some(count), phase["operations"].as_u64());
    }
    assert_eq!(result["settings"]["engine"], Value::from("rocksdb"));
}

#[test]
fn a_ycsb_run_gives_its_memory_to_the_cache_that_the_mode_names() {
    let args = "--workload load,a --records 500 --ops 300 --value 1000 --memory 100MiB --json";
    for (flags, page_cache, block_cache) in [
        ("--engine leveldb", 100 - 8 - 8, 8),
        ("--engine leveldb --cache-mode direct --reopen", 100 - 8 - 8, 8),
        ("--engine leveldb --cache-mode engine", 0, 100 - 8),
        ("--write-buffer 4MiB --block-cache 2MiB", 100 - 16 - 2, 2),
        ("--write-buffer 4MiB --cache-mode engine-prepopulated", 0, 100 - 16),
    ] {
        let result = json(&format!("bench ycsb -d {DRIVE} {args} {flags}"));
        let mib = |bytes: u64| Value::from(bytes << 20);
        assert_eq!(result["memory"]["page_cache"], mib(page_cache), "{flags}: {result}");
        assert_eq!(result["memory"]["block_cache"], mib(block_cache), "{flags}: {result}");
        let phases = result["phases"].as_array().expect("a list");
        assert_eq!(phases[1]["missing"], Value::from(0), "{flags}");
        assert!(phases[1]["device_operations"]["read_bytes"].is_u64(), "{flags}");
        assert_eq!(phases[1]["open_seconds"].is_number(), flags.contains("reopen"), "{flags}");
    }
}

#[test]
fn a_kv_run_reports_each_log_and_each_mix() {
    const SMALL_DRIVE: &str = "emu:mem?zones=64&zone-size=4MiB";
    let small = "--records 300 --ops 600 --write-buffer 256KiB --slowest 3 --interval 1s --json";
    for (wal, mix, kinds) in [
        ("base", "write=100", &["write"][..]),
        ("group", "write=70,read=30", &["write", "read"]),
        ("waltz", "mixgraph-prefix-dist", &["write", "read", "scan"]),
        ("auto", "write=50,read=40,scan=10", &["write", "read", "scan"]),
    ] {
        let result =
            json(&format!("bench kv -d {SMALL_DRIVE} --wal {wal} --mix {mix} --write-buffers 2 {small}"));
        let names = ["p50", "p75", "p99", "p99_9", "p99_99", "max"].map(|name| format!("latency_us.{name}"));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        has_numbers(&result, &names);
        has_numbers(
            &result,
            &["seconds", "ops_per_s", "write_amplification", "device_operations.bytes", "mean_write.us"],
        );
        assert_eq!((&result["wal"], &result["mix"]), (&Value::from(wal), &Value::from(mix)));
        assert_eq!((&result["missing"], &result["clock"]), (&Value::from(0), &Value::from("real")));
        let list = |name: &str| result[name].as_array().cloned().unwrap_or_default();
        let found: Vec<Value> = list("kinds").iter().map(|kind| kind["operation"].clone()).collect();
        assert_eq!(found, kinds);
        let count: u64 = list("kinds").iter().filter_map(|kind| kind["count"].as_u64()).sum();
        assert_eq!(count, 600);
        assert_eq!((list("slowest").len(), list("intervals").is_empty()), (3, false));
        // RocksDB's own log has groups: as many as RocksDB counts, and every put is in one.
        let own = wal == "base" || wal == "group";
        let sum = |of: fn(&Value) -> Option<u64>| list("groups").iter().filter_map(of).sum::<u64>();
        let writes = list("kinds")[0]["count"].as_u64();
        let grouped = sum(|of| Some(of["writers"].as_u64()? * of["groups"].as_u64()?));
        assert_eq!(Some(grouped), if own { writes } else { Some(0) });
        let groups = sum(|of| of["groups"].as_u64());
        assert_eq!(Some(groups), if own { result["background"]["groups"].as_u64() } else { Some(0) });
        if mix == "write=100" {
            // 600 puts of 4 KiB fill memtables of 256 KiB, of which no flush takes more than two.
            assert!(result["background"]["flushes"].as_u64() > Some(3), "{result}");
        }
    }
}

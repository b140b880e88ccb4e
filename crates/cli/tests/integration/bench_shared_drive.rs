//! `furrow bench share`, `bench turns` and `bench prio`: the fields of their JSON, and arguments that make no sense.

use serde_json::{Value, json};

use crate::common::{self, done, refused, run, stderr_of};

fn bench(args: &[&str]) -> std::process::Output {
    run(None, &[&["bench"][..], args].concat())
}

#[track_caller]
fn lines(args: &[&str]) -> Vec<Value> {
    let result = common::json(&done(&bench(args)));
    assert!(result.pointer("/host/commit").is_some_and(Value::is_string), "{result}");
    result.get("lines").and_then(Value::as_array).expect("a list").clone()
}

#[track_caller]
fn number(line: &Value, name: &str) -> f64 {
    let value = line.pointer(&format!("/{}", name.replace('.', "/")));
    value.and_then(Value::as_f64).unwrap_or_else(|| panic!("{name} is {value:?} in {line}"))
}

/// Checks that clap refused the arguments, and named the flag and what it takes.
#[track_caller]
fn refused_by_clap(args: &[&str], words: &[&str]) {
    let output = bench(args);
    let said = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
}

#[test]
fn bench_share_reports_a_log_beside_bulk_without_the_scheduler_and_with_it() {
    let lines = lines(&["share", "--profile", "zn540", "--seconds", "1", "--json"]);
    let loads: Vec<_> = lines.iter().map(|line| (line["log"].clone(), line["admit"].clone())).collect();
    let [one, rate] = [json!("one_after_the_other"), json!({ "rate": 2000 })];
    let both = |log: &Value| ["unbounded", "controller"].map(|admit| (log.clone(), json!(admit)));
    assert_eq!(loads, [both(&one), both(&rate)].concat());
    for pair in lines.chunks(2) {
        let [unbounded, controlled] = pair else { panic!("{pair:?}") };
        assert!(number(unbounded, "mean") > 10.0 * number(controlled, "mean"), "{pair:?}");
        for line in pair {
            assert_eq!(line["profile"], "zn540");
            assert!(number(line, "mean") >= 1.0 && number(line, "p99") >= 1.0, "{line}");
            assert!((0.8..=1.01).contains(&number(line, "kept")), "{line}");
            // Means are multiples of those alone, and what is kept is of the bulk's own rate less the log's bytes.
            let mean = number(line, "beside.log_latency.mean") / number(line, "log_alone.log_latency.mean");
            assert!((mean / number(line, "mean") - 1.0).abs() < 1e-9, "{line}");
            let left = number(line, "bulk_alone.bulk_rate") - number(line, "beside.log_rate");
            let kept = number(line, "beside.bulk_rate") / left;
            assert!((kept / number(line, "kept") - 1.0).abs() < 1e-9, "{line}");
            assert_eq!(number(line, "bulk_alone.log_rate") + number(line, "log_alone.bulk_rate"), 0.0);
        }
    }
}

#[test]
fn bench_share_with_admit_floor_sweeps_fixed_rates_up_to_the_bulk_s_own() {
    let args = [
        "share",
        "--profile",
        "zn540",
        "--seconds",
        "1",
        "--admit",
        "controller",
        "--admit",
        "floor",
        "--json",
    ];
    let lines = lines(&args);
    assert_eq!(lines.len(), 2 * 11);
    for sweep in lines.chunks(11) {
        let (controlled, fixed) = sweep.split_first().expect("lines");
        assert_eq!(controlled["admit"], "controller");
        let own = number(controlled, "bulk_alone.bulk_rate");
        for (step, line) in fixed.iter().enumerate() {
            let rate = number(line, "admit.fixed");
            let share = (step + 1) as f64 / 10.0;
            assert!((rate / own / share - 1.0).abs() < 1e-6, "{line}");
            // Bulk has the rate that it is given, but for the pieces at the ends of the second, and the log at the bulk's own rate.
            let has = number(line, "beside.bulk_rate") / rate;
            assert!((0.98..=1.02).contains(&has), "{has}: {line}");
        }
        let mean = |line: &Value| number(line, "mean");
        assert!(mean(&fixed[0]) < 1.1 && mean(&fixed[9]) > 10.0, "{fixed:?}");
    }
}

#[test]
fn bench_share_refuses_arguments_that_make_no_sense_in_words() {
    refused_by_clap(&["share", "--log-target", "99"], &["--log-target", "99 is not in 100.."]);
    refused_by_clap(&["share", "--log-rate", "0"], &["--log-rate", "1..=100000"]);
    refused_by_clap(&["share", "--admit", "fast"], &["'fast'", "unbounded, controller, floor"]);
    refused_by_clap(&["share", "--last-bulk-zone", "0"], &["--last-bulk-zone", "1..=65536"]);
    refused(&bench(&["share", "--profile", "zn541"]), 2, &["unknown profile zn541", "zn540"]);
    refused(
        &bench(&["share", "--bulk-zones", "8", "--bulk-in-flight", "4"]),
        2,
        &["--bulk-in-flight", "--bulk-zones"],
    );
}

#[test]
fn bench_turns_reports_who_wrote_snapshots_and_compares_sizes() {
    let lines = lines(&[
        "turns",
        "--snapshot",
        "16MiB",
        "--snapshot",
        "32MiB",
        "--snap-count",
        "2000",
        "--seconds",
        "1",
        "--policy",
        "none",
        "--policy",
        "random",
        "--policy",
        "turns",
        "--json",
    ]);
    let loads: Vec<_> = lines
        .iter()
        .map(|line| (line["policy"].as_str(), line["scheduler"].as_bool(), line["snapshot_bytes"].as_u64()))
        .collect();
    let of = |policy| {
        [(false, 16), (false, 32), (true, 16), (true, 32)]
            .map(|(scheduler, mib)| (Some(policy), Some(scheduler), Some(mib << 20)))
    };
    let none = (Some("none"), Some(false), Some(16 << 20));
    assert_eq!(loads, [&[none][..], &of("random"), &of("turns")].concat());
    for (line, (policy, _, mib)) in lines.iter().zip(&loads) {
        assert!(number(line, "writes_per_s") > 0.0 && number(line, "write_latency.max") > 0.0, "{line}");
        assert_eq!(line["due"], json!({ "entries": 2000 }));
        assert!(number(line, "longest_log_bytes") > 0.0 && line["hand_overs"].is_u64(), "{line}");
        assert!(
            line["forced"].is_u64() && number(line, "snapshots_on_leader") <= number(line, "snapshots"),
            "{line}"
        );
        // Servers with turns may write nothing in this second: a turn comes and goes at the rate that the log leaves time for.
        let bulk = number(line, "bulk_bytes_per_s") > 0.0;
        let at_once = number(line, "most_at_once");
        let is_right = match *policy {
            Some("none") => !bulk && at_once == 0.0,
            Some("random") => bulk && at_once > 1.0,
            _ => at_once <= 1.0,
        };
        assert!(is_right, "{line}");
        if *mib == Some(32 << 20) {
            let same =
                |other: &&Value| other["policy"] == line["policy"] && other["scheduler"] == line["scheduler"];
            let first = lines.iter().find(same).expect("the line of the first size");
            let by_first = number(line, "writes_per_s") / number(first, "writes_per_s");
            assert!((number(line, "by_first_size") / by_first - 1.0).abs() < 1e-9, "{line}");
        } else {
            assert!(line["by_first_size"].is_null(), "{line}");
        }
    }
}

#[test]
fn bench_turns_refuses_groups_and_snapshots_that_make_no_sense_in_words() {
    refused(&bench(&["turns", "--servers", "2"]), 2, &["2 servers", "3 to 9"]);
    refused(&bench(&["turns", "--snapshot", "4KiB"]), 2, &["snapshots of 4096 bytes", "1 MiB to 64 GiB"]);
    refused(&bench(&["turns", "--profile", "zn541"]), 2, &["unknown profile zn541", "zn540"]);
    refused(&bench(&["turns", "--snap-count", "1"]), 2, &["after 2 to 2^32 - 1 entries"]);
    refused_by_clap(&["turns", "--policy", "leader"], &["'leader'", "none, random, patch, turns"]);
    refused_by_clap(&["turns", "--seconds", "0"], &["--seconds", "1..=3600"]);
}

#[test]
fn bench_prio_measures_each_way_alone_and_beside_bulk_and_leaves_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_str().unwrap();
    let lines = lines(&["prio", "--path", path, "--records", "20", "--bulk", "1", "--json"]);
    let beside = |way: &str| -> Vec<bool> {
        lines
            .iter()
            .filter(|line| line["way"] == way)
            .filter_map(|line| line["beside_bulk"].as_bool())
            .collect()
    };
    // io_uring and the program furrow-prio-writer are not everywhere.
    for way in ["plain", "thread", "pipe"] {
        assert_eq!(beside(way), [false, true], "{way}: {lines:?}");
    }
    let has_bulk = |line: &&Value| number(line, "bulk_bytes_per_s") > 0.0;
    assert!(lines.iter().any(|line| has_bulk(&line)), "{lines:?}");
    for line in &lines {
        assert!(line["real_time"].is_boolean(), "{line}");
        assert!(number(line, "latencies.mean") > 0.0, "{line}");
        assert!(number(line, "latencies.max") >= number(line, "latencies.p50"), "{line}");
        assert!(!has_bulk(&line) || line["beside_bulk"] == true, "{line}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn bench_prio_refuses_a_missing_path_and_records_without_bytes_in_words() {
    refused_by_clap(&["prio"], &["--path"]);
    refused_by_clap(&["prio", "--path", ".", "--record", "0"], &["--record", "1..=1048576"]);
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let output = bench(&["prio", "--path", missing.to_str().unwrap()]);
    let said = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("missing: No such file") && said.contains("name another one"), "{said}");
}

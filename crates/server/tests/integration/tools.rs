//! Tests of stock Redis programs against the server.

use crate::common::*;

fn cli(server: &Running, words: &[&str]) -> String {
    let output = run(stock_command("redis-cli").args(["-p", &server.port()]).args(words));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn redis_cli_works_in_both_protocols() {
    let server = start(options());
    for version in ["-2", "-3"] {
        assert_eq!(cli(&server, &[version, "set", "k", "v"]), "OK\n");
        assert_eq!(cli(&server, &[version, "get", "k"]), "v\n");
        assert_eq!(cli(&server, &[version, "--no-raw", "get", "none"]), "(nil)\n");
        assert_eq!(
            cli(&server, &[version, "--no-raw", "config", "get", "save"]).lines().count(),
            2 - usize::from(version == "-3")
        );
        assert!(cli(&server, &[version, "command", "info", "get"]).starts_with("get\n2\n"));
        assert!(cli(&server, &[version, "info", "server"]).contains("redis_version:"));
    }
    assert_eq!(cli(&server, &["--scan"]), "k\n");
    assert_eq!(cli(&server, &["client", "list"]).lines().count(), 1);
    cli(&server, &["shutdown"]);
    server.end().unwrap();
}

#[test]
fn redis_benchmark_runs_to_its_end() {
    let server = start(options());
    let output = run(stock_command("redis-benchmark").args([
        "-p",
        &server.port(),
        "-t",
        "set,get,mset,incr,ping",
        "-P",
        "16",
        "-n",
        "20000",
        "-r",
        "1000",
        "-q",
    ]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for test in ["PING_INLINE", "SET", "GET", "INCR", "MSET"] {
        assert!(text.contains(&format!("{test}: ")) || text.contains(&format!("{test} (")), "{test}: {text}");
    }
    assert!(!text.contains("WARNING"), "{text}");
    let counter = server.client().line("DBSIZE");
    assert!(matches!(counter, Value::Integer(n) if n > 500), "{counter:?}");
}

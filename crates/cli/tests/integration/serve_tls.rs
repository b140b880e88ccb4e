//! Tests of `furrow serve` with TLS for clients, by Debian's redis-cli.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::common::{done, refused, run, stderr_of};

/// A folder with an authority's certificate, and with certificates and keys of a server and of a client that it signed.
fn certificates() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let params = |subject: &str, names: &[String]| {
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, subject);
        params
    };
    let write = |file: &str, text: String| std::fs::write(folder.path().join(file), text).expect("written");
    let mut authority = params("authority", &[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("signs");
    write("authority.pem", authority.pem());
    for (name, names) in [("server", &["127.0.0.1".to_owned()][..]), ("client", &[])] {
        let key = KeyPair::generate().expect("a key");
        write(&format!("{name}.pem"), params(name, names).signed_by(&key, &authority).expect("signs").pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    folder
}

/// The path of a file in a folder.
fn path(folder: &TempDir, file: &str) -> String {
    folder.path().join(file).display().to_string()
}

/// A process of `furrow serve` on a new drive, and the folder of its files.
struct Server {
    process: Child,
    port: String,
    folder: TempDir,
}

impl Server {
    /// Starts a server with the files of [`certificates`]; `more`: further options, whose values are names of these files.
    fn start(more: &[(&str, &str)]) -> Server {
        let folder = certificates();
        let mut command = Command::new(env!("CARGO_BIN_EXE_furrow"));
        command.env_remove("FURROW_LOG").args(["serve", "--port", "0", "--http", "none", "-d"]);
        command.arg(format!("emu:{}?zones=64&zone-size=4MiB", path(&folder, "drive.img")));
        for (option, file) in [("--client-tls-certificate", "server.pem"), ("--client-tls-key", "server.key")]
            .iter()
            .chain(more)
        {
            command.arg(option).arg(path(&folder, file));
        }
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().expect("starts");
        let mut ready = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
        let address = ready.split(" on ").nth(1).and_then(|rest| rest.split(',').next());
        let port = address.and_then(|at| at.rsplit(':').next()).expect("an address").to_owned();
        Server { process, port, folder }
    }

    /// Runs redis-cli as a client that trusts the authority.
    fn redis_cli(&self, words: &[&str]) -> Output {
        let authority = path(&self.folder, "authority.pem");
        self.redis_cli_without_tls(&[&["--tls", "--cacert", &authority], words].concat())
    }

    fn redis_cli_without_tls(&self, words: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["60", "redis-cli", "-e", "-p", &self.port]).args(words).stdin(Stdio::null());
        command.output().expect("timeout comes with coreutils")
    }

    /// Ends the server by SHUTDOWN of a client with these words; returns the lines of its log that say `warn`.
    fn end(mut self, words: &[&str]) -> Vec<String> {
        self.redis_cli(&[words, &["shutdown"]].concat());
        assert!(self.process.wait().expect("ends").success());
        let log = std::fs::read_to_string(self.folder.path().join("log")).expect("a log");
        log.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

#[test]
fn a_server_with_a_certificate_takes_clients_by_tls_and_no_others() {
    let server = Server::start(&[]);
    assert_eq!(done(&server.redis_cli(&["set", "k", "v"])), "OK\n");
    assert_eq!(done(&server.redis_cli(&["get", "k"])), "v\n");
    let plain = server.redis_cli_without_tls(&["get", "k"]);
    assert!(!plain.status.success() && !String::from_utf8_lossy(&plain.stdout).contains('v'), "{plain:?}");
    assert_eq!(done(&server.redis_cli(&["get", "k"])), "v\n");
    let warnings = server.end(&[]);
    let of_clients: Vec<_> = warnings.iter().filter(|line| line.contains("client")).collect();
    assert!(
        of_clients.len() == 1 && of_clients[0].contains("speaks TLS"),
        "one line for one client: {warnings:?}"
    );
}

#[test]
fn a_server_with_an_authority_takes_clients_with_its_certificates_alone() {
    let server = Server::start(&[("--client-tls-authority", "authority.pem")]);
    let refused = server.redis_cli(&["set", "k", "v"]);
    assert!(!refused.status.success(), "{refused:?}");
    let (certificate, key) = (path(&server.folder, "client.pem"), path(&server.folder, "client.key"));
    let with = ["--cert", &certificate, "--key", &key];
    assert_eq!(done(&server.redis_cli(&[&with[..], &["get", "k"]].concat())), "\n");
    let warnings = server.end(&with);
    assert!(warnings.iter().any(|line| line.contains("no certificates")), "{warnings:?}");
}

#[test]
fn a_server_stops_at_a_signal_while_a_client_holds_its_handshake_open() {
    let mut server = Server::start(&[]);
    let port = server.port.parse().expect("a port");
    let mut silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("listens");
    silent.write_all(&[0x16, 3, 1]).expect("sent");
    assert_eq!(done(&server.redis_cli(&["ping"])), "PONG\n");
    let id = server.process.id().to_string();
    done(&Command::new("kill").args(["-TERM", &id]).output().expect("kill comes with coreutils"));
    assert!(server.process.wait().expect("ends").success());
    let mut rest = Vec::new();
    let _reset = silent.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn files_that_cannot_be_used_and_options_that_lack_others_are_refused_in_words() {
    let folder = certificates();
    let drive = format!("emu:{}?zones=64&zone-size=4MiB", path(&folder, "drive.img"));
    let serve = |certificate: &str, key: &str| {
        let (certificate, key) = (path(&folder, certificate), path(&folder, key));
        let files = ["--client-tls-certificate", &certificate, "--client-tls-key", &key];
        run(Some(&drive), &[&["serve", "--port", "0", "--http", "none"], &files[..]].concat())
    };
    refused(&serve("none.pem", "server.key"), 1, &["none.pem", "--client-tls-certificate", "No such file"]);
    refused(&serve("server.key", "server.key"), 1, &["no certificate", "--client-tls-certificate"]);
    refused(&serve("server.pem", "client.key"), 1, &["client.key", "does not belong to", "server.pem"]);
    assert!(!folder.path().join("drive.img").exists(), "the drive is not made before the files are read");
    for (given, lacking) in [
        ("--client-tls-certificate", "--client-tls-key"),
        ("--client-tls-key", "--client-tls-certificate"),
        ("--client-tls-authority", "--client-tls-certificate"),
    ] {
        let output = run(Some(&drive), &["serve", given, "file"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr_of(&output).contains(lacking), "{}", stderr_of(&output));
    }
}

#[test]
fn a_node_of_a_cluster_serves_other_machines_by_tls_and_with_a_password_alone() {
    let folder = certificates();
    let file = |name: &str| path(&folder, name);
    let (certificate, key, password) = (file("server.pem"), file("server.key"), file("server.key"));
    let tls = ["--client-tls-certificate", &certificate, "--client-tls-key", &key];
    let password = ["--password-file", &password];
    let node =
        ["serve", "--bind", "0.0.0.0", "--port", "0", "--http", "none", "--join", "http://127.0.0.1:1"];
    let node = [&node[..], &["--cluster", "barn", "--peer", "127.0.0.1:1"]].concat();
    let serve = |options: &[&str]| run(Some("emu:mem"), &[&node[..], options].concat());
    refused(&serve(&password), 1, &["--bind 0.0.0.0", "--client-tls-certificate"]);
    refused(&serve(&tls), 2, &["--bind 0.0.0.0", "--password-file"]);
}

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use super::*;

/// An HTTP server on the loopback interface: `reply` gives the whole answer to each request's head, or none, and then the request is not answered.
fn serve(reply: impl Fn(&str) -> Option<String> + Send + 'static) -> AdminServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    std::thread::Builder::new()
        .spawn(move || {
            let mut unanswered = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                match reply(&head.join("\n")) {
                    Some(answer) => drop(stream.write_all(answer.as_bytes())),
                    None => unanswered.push(stream),
                }
            }
        })
        .unwrap();
    AdminServer::new(address, Some(Credentials::for_test("super:secret")))
}

fn http(status: u16, headers: &str, body: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    ))
}

fn json(head: &str) -> Option<String> {
    let body = if head.contains("/leader ") {
        r#"{"is_leader":false,"leader_id":3,"leader_ip":"a","error":null}"#
    } else if head.contains("/zabstate ") {
        r#"{"last_zxid":"0x200000007","zabstate":"broadcast","error":null}"#
    } else if head.contains("/last_snapshot ") {
        r#"{"zxid":"200000001","timestamp":1,"error":null}"#
    } else if head.contains("/monitor ") {
        r#"{"version":"3.9.5-a, built on b","server_state":"follower","cnt_snapshottime":2,"cnt_fsynctime":10,"sum_fsynctime":35,
            "znode_count":10,"approximate_data_size":1000,"error":null}"#
    } else if head.contains("/voting_view ") {
        r#"{"current_config":{"1":{},"2":{},"3":{}},"error":null}"#
    } else {
        return http(200, "", r#"{"error":"Unknown command: x"}"#);
    };
    http(200, "", body)
}

#[test]
fn a_sample_is_made_of_four_answers_and_needs_no_credentials() {
    let server = serve(|head| {
        assert!(!head.to_ascii_lowercase().contains("authorization"), "{head}");
        json(head)
    });
    let sample = server.sample().unwrap();
    assert_eq!((sample.role, sample.leader), (Role::Follower, ServerId(3)));
    assert_eq!((sample.zxid, sample.snapshot), (Zxid(0x2_0000_0007), Some(Zxid(0x2_0000_0001))));
    assert_eq!((sample.snapshots, sample.syncs, sample.sync_time), (2, 10, Duration::from_millis(35)));
    assert_eq!((sample.data, sample.proposal), (Bytes(1900), None));
    assert_eq!(server.voters().unwrap(), [1, 2, 3].map(ServerId).into());
    assert!(matches!(server.id(), Err(AskError::Refused { .. })));
}

#[test]
fn a_snapshot_carries_the_credentials_and_gives_its_size() {
    let server = serve(|head| {
        assert!(head.starts_with("GET /commands/snapshot?streaming=false "), "{head}");
        assert!(head.to_ascii_lowercase().contains("authorization: digest super:secret"), "{head}");
        http(
            200,
            "last_zxid: 0x10000000a\r\nsnapshot_size: 4096\r\n",
            r#"{"command":"snapshot","error":null}"#,
        )
    });
    let taken = server.snapshot(REQUEST_TIMEOUT).unwrap();
    assert_eq!(taken, SnapshotTaken { size: Bytes(4096), zxid: Zxid(0x1_0000_000a) });
}

#[test]
fn each_refusal_of_a_snapshot_has_an_error_of_its_own() {
    for (status, word) in [
        (401, "USER:PASSWORD"),
        (403, "ACL"),
        (429, "too many"),
        (503, "admin.snapshot.enabled"),
        (500, "its log"),
    ] {
        let server = serve(move |_| http(status, "", r#"{"command":"snapshot","error":null}"#));
        let error = server.snapshot(REQUEST_TIMEOUT).unwrap_err().to_string();
        assert!(error.contains(word), "{status}: {error}");
    }
}

#[test]
fn a_status_of_a_gateway_leaves_open_what_the_server_does() {
    let own = r#"{"command":"snapshot","error":null}"#;
    for (status, body, is_open) in [
        (500, "<html>", true),
        (500, r#"{"error":"gateway"}"#, true),
        (503, "upstream reset", true),
        (502, own, true),
        (504, own, true),
        (408, own, true),
        (301, "", true),
        (400, "<html>", false),
        (404, "<html>", false),
        (500, own, false),
        (503, own, false),
    ] {
        let server = serve(move |_| http(status, "", body));
        let error = server.snapshot(REQUEST_TIMEOUT).unwrap_err();
        assert_eq!(matches!(error, AskError::Unanswered { .. }), is_open, "{status} {body}: {error}");
    }
}

#[test]
fn a_snapshot_that_never_answers_is_unanswered_after_its_time() {
    let server = serve(|_| None);
    let error = server.snapshot(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, AskError::Unanswered { command: "snapshot", .. }), "{error}");
}

#[test]
fn an_answer_that_is_cut_short_leaves_it_open_whether_a_snapshot_was_taken() {
    let server = serve(|_| Some("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_owned()));
    assert!(matches!(server.snapshot(REQUEST_TIMEOUT), Err(AskError::Unanswered { .. })));
}

#[test]
fn credentials_are_checked_by_a_get_that_restores_nothing() {
    for (status, wanted) in [
        (401, Err(AskError::NotAuthenticated)),
        (403, Err(AskError::NotAuthorized)),
        (500, Ok(())),
        (405, Ok(())),
    ] {
        let server = serve(move |head| {
            assert!(head.starts_with("GET /commands/restore "), "{head}");
            http(status, "", "<html>")
        });
        assert_eq!(server.check_credentials(), wanted);
    }
    let starting =
        serve(|_| http(200, "", r#"{"error":"This ZooKeeper instance is not currently serving requests"}"#));
    assert_eq!(starting.check_credentials(), Err(AskError::Starting));
}

#[test]
fn a_closed_port_and_a_foreign_program_are_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = AdminServer::new(closed.to_string().parse().unwrap(), None);
    assert!(matches!(server.sample(), Err(AskError::NotListening(_))));
    let foreign = serve(|_| http(200, "", "<html>hello</html>"));
    assert!(matches!(foreign.sample(), Err(AskError::NoAdminServer { .. })));
    let other = serve(|_| Some("+PONG\r\n".to_owned()));
    assert!(matches!(other.sample(), Err(AskError::Unanswered { .. })));
}

#[test]
fn an_endless_answer_is_refused() {
    let server = serve(|_| http(200, "", &"x".repeat(MAX_ANSWER_BYTES as usize + 1)));
    assert!(server.sample().is_err());
}

#[test]
fn an_error_of_connecting_is_no_lost_answer() {
    // A name that no resolver knows, and an address of IPv6's discard prefix.
    for address in ["no-such-host.invalid:80", "[100::1]:80"] {
        let server = AdminServer::new(address.parse().unwrap(), None);
        let error = server.snapshot(Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, AskError::NotConnected(_) | AskError::NotListening(_)), "{address}: {error}");
    }
}

#[test]
fn a_connection_that_is_not_accepted_in_time_is_no_lost_answer() {
    // Nobody accepts, and the queue of connections is full.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
    }
    let server = AdminServer::new(address.to_string().parse().unwrap(), None);
    let error = server.snapshot(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, AskError::NotConnected(_)), "{error}");
}

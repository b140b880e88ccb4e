use proptest::prelude::*;

use super::*;

const LIMITS: ParserLimits = ParserLimits { bulk: 1000, args: 100, request: 5000 };

type Commands = Vec<Vec<Vec<u8>>>;

/// Parses `bytes` in pieces that end at `cuts`, and takes the commands after each piece.
fn feed(bytes: &[u8], cuts: &[usize], unauthenticated: bool) -> (Commands, Option<ProtocolError>) {
    let mut parser = Parser::new(LIMITS, unauthenticated);
    let mut commands = Vec::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let (mut from, mut used) = (0, Requests::default());
    for cut in cuts {
        parser.buffer().extend_from_slice(&bytes[from..cut]);
        from = cut;
        let result = parser.parse();
        let requests = parser.take(used);
        commands.extend(requests.iter().map(|args| args.rest(0).map(<[u8]>::to_vec).collect::<Vec<_>>()));
        used = requests;
        if let Err(error) = result {
            return (commands, Some(error));
        }
    }
    (commands, None)
}

fn words(commands: &[&[&str]]) -> Commands {
    commands.iter().map(|c| c.iter().map(|w| w.as_bytes().to_vec()).collect()).collect()
}

#[test]
fn arrays_and_lines_give_the_same_commands() {
    let (commands, error) = feed(
        b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nping\r\n\r\n*0\r\n*-1\r\n  set a \"x\\x41\\n\\\"\" '\\'y' \n*1\r\n$0\r\n\r\n",
        &[],
        false,
    );
    assert_eq!(error, None);
    assert_eq!(commands, words(&[&["GET", "a"], &["ping"], &["set", "a", "xA\n\"", "'y"], &[""]]));
}

#[test]
fn the_commands_before_a_malformed_request_are_kept_and_the_error_names_it() {
    let long = "x".repeat(LINE_LIMIT + 10);
    for (bytes, text) in [
        ("*x\r\n".into(), "invalid multibulk length"),
        ("*101\r\n".into(), "invalid multibulk length"),
        ("*1\r\nfoo\r\n".into(), "expected '$', got 'f'"),
        ("*1\r\n$-1\r\n".into(), "invalid bulk length"),
        (
            "*1\r\n$1001\r\n".into(),
            "invalid bulk length: 1001 bytes are above the limit of 1000 (--max-value)",
        ),
        ("*1\r\n$3\r\nabcdef\r\n".into(), "a bulk string does not end where its length says"),
        ("set \"a b\r\n".into(), "unbalanced quotes in request"),
        ("set \"a\"b\r\n".into(), "unbalanced quotes in request"),
        (long.clone(), "too big inline request"),
        (format!("*1{long}"), "too big mbulk count string"),
        (format!("*1\r\n$1{long}"), "too big bulk count string"),
        (
            format!("*9\r\n{}", "$1000\r\n".to_owned() + &"y".repeat(1000) + "\r\n").repeat(9),
            "expected '$', got '*'",
        ),
    ] {
        let (commands, error) = feed(format!("PING\r\n{bytes}").as_bytes(), &[], false);
        assert_eq!(commands, words(&[&["PING"]]), "{text}");
        assert_eq!(error, Some(ProtocolError::Malformed(text.into())));
    }
}

#[test]
fn a_line_of_http_ends_parsing_and_a_word_of_data_does_not() {
    for line in ["POST / HTTP/1.1", "post", "Host: x", "hOsT:", "\"POST\" /"] {
        let (commands, error) = feed(format!("PING\r\n{line}\r\nFLUSHALL\r\n").as_bytes(), &[], false);
        assert_eq!((commands, error), (words(&[&["PING"]]), Some(ProtocolError::Http)), "{line}");
    }
    let (commands, error) = feed(b"SET post host:\r\nposted\r\n", &[], false);
    assert_eq!((commands, error), (words(&[&["SET", "post", "host:"], &["posted"]]), None));
}

#[test]
fn a_request_that_never_ends_is_cut_off() {
    let body = format!("$1000\r\n{}\r\n", "y".repeat(1000)).repeat(7);
    let (_, error) = feed(format!("*50\r\n{body}").as_bytes(), &[], false);
    assert_eq!(error, Some(ProtocolError::Malformed("request is longer than 5000 bytes".into())));
}

#[test]
fn unauthenticated_clients_get_small_limits() {
    let (_, error) = feed(b"*11\r\n", &[], true);
    assert_eq!(error, Some(ProtocolError::Malformed("unauthenticated multibulk length".into())));
    let mut parser = Parser::new(ParserLimits { bulk: 1 << 20, ..LIMITS }, true);
    parser.buffer().extend_from_slice(b"*1\r\n$20000\r\n");
    assert_eq!(parser.parse(), Err(ProtocolError::Malformed("unauthenticated bulk length".into())));
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n".to_vec()),
        Just(b"*1\r\n$4\r\nPING\r\n".to_vec()),
        Just(b"*0\r\n".to_vec()),
        Just(b"set k \"v \\x0a\"\r\n".to_vec()),
        Just(b"Host: x\r\n".to_vec()),
        Just(b"$".to_vec()),
        Just(b"*".to_vec()),
        Just(b"\r\n".to_vec()),
        "[0-9]{1,4}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..8),
        (0usize..1200).prop_map(|n| [
            format!("*1\r\n${n}\r\n").into_bytes(),
            vec![b'z'; n],
            b"\r\n".to_vec()
        ]
        .concat()),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes_cut_anywhere_give_the_same_commands_and_the_same_error(
        bytes in pieces(),
        cuts in proptest::collection::vec(any::<usize>(), 0..10),
        unauthenticated: bool,
    ) {
        prop_assert_eq!(feed(&bytes, &cuts, unauthenticated), feed(&bytes, &[], unauthenticated));
    }

    #[test]
    fn encoded_commands_are_parsed_to_the_same_words(
        commands in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6), 0..10),
        cuts in proptest::collection::vec(any::<usize>(), 0..10),
    ) {
        let mut bytes = Vec::new();
        for command in &commands {
            bytes.extend(format!("*{}\r\n", command.len()).into_bytes());
            for word in command {
                bytes.extend(format!("${}\r\n", word.len()).into_bytes());
                bytes.extend_from_slice(word);
                bytes.extend(b"\r\n");
            }
        }
        prop_assert_eq!(feed(&bytes, &cuts, false), (commands, None));
    }
}

//! The filters of CLIENT KILL and CLIENT LIST.

use kv::Args;

use super::call::SYNTAX;
use crate::clients::Client;

/// A set of filters, which accepts the clients that all its filters accept.
#[derive(Default, Debug)]
pub(super) struct ClientFilter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    kind: Option<ClientKind>,
    max_age: Option<u64>,
    skip: Option<u64>,
}

/// The kinds of clients that Redis knows. All clients of this server are normal ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientKind {
    Normal,
    Master,
    Replica,
    Pubsub,
}

impl ClientKind {
    /// The kind of clients that `name` stands for.
    pub fn parse(name: &[u8]) -> Result<ClientKind, String> {
        Ok(match name.to_ascii_lowercase().as_slice() {
            b"normal" => ClientKind::Normal,
            b"master" => ClientKind::Master,
            b"replica" | b"slave" => ClientKind::Replica,
            b"pubsub" => ClientKind::Pubsub,
            _ => return Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name))),
        })
    }
}

impl<'a> ClientFilter<'a> {
    /// The filter that accepts the client with this address.
    pub fn of_address(address: &'a [u8]) -> ClientFilter<'a> {
        ClientFilter { address: Some(address), ..ClientFilter::default() }
    }

    /// Reads pairs of a filter's name and value from the third word on. `own`: the number of the client that asks,
    /// which is skipped unless SKIPME says no.
    pub fn parse(args: Args<'a>, own: u64) -> Result<ClientFilter<'a>, String> {
        let mut filter = ClientFilter { skip: Some(own), ..ClientFilter::default() };
        if args.len() % 2 == 1 {
            return Err(SYNTAX.into());
        }
        for n in (2..args.len()).step_by(2) {
            let value = args.get(n + 1);
            let positive = || kv::parse_integer(value).filter(|n| *n > 0).map(i64::unsigned_abs);
            match args.get(n).to_ascii_uppercase().as_slice() {
                b"ID" => filter.id = Some(positive().ok_or("ERR client-id should be greater than 0")?),
                b"ADDR" => filter.address = Some(value),
                b"LADDR" => filter.local = Some(value),
                b"TYPE" => filter.kind = Some(ClientKind::parse(value)?),
                b"USER" if value == b"default" => {}
                b"USER" => {
                    return Err(format!("ERR No such user '{}'", String::from_utf8_lossy(value)));
                }
                b"MAXAGE" => filter.max_age = Some(positive().ok_or("ERR maxage should be greater than 0")?),
                b"SKIPME" if value.eq_ignore_ascii_case(b"yes") => filter.skip = Some(own),
                b"SKIPME" if value.eq_ignore_ascii_case(b"no") => filter.skip = None,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    /// Whether all filters accept `client` at the time `now_ms`.
    pub fn accepts(&self, client: &Client, now_ms: u64) -> bool {
        let is = |wanted: Option<&[u8]>, address: &std::net::SocketAddr| {
            wanted.is_none_or(|wanted| wanted == address.to_string().as_bytes())
        };
        self.skip != Some(client.id)
            && self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == ClientKind::Normal)
            && self.max_age.is_none_or(|seconds| client.age_seconds(now_ms) >= seconds)
            && is(self.address, &client.address)
            && is(self.local, &client.local)
    }
}

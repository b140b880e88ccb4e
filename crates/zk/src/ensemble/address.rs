//! The address of an AdminServer.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The most servers in an ensemble: more voters than anyone runs.
const MOST_SERVERS: usize = 31;

/// Host and port of an AdminServer, such as `10.0.0.1:8080` or `[::1]:8080`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerAddress(String);

impl ServerAddress {
    /// Decodes a list of addresses between commas: every voter of an ensemble.
    ///
    /// # Errors
    /// A sentence: a word that is no address, an address given twice, fewer than three servers, an even number of servers, more than 31.
    pub fn parse_ensemble(text: &str) -> Result<Vec<ServerAddress>, String> {
        let addresses: Vec<ServerAddress> =
            text.split(',').map(str::trim).map(str::parse).collect::<Result<_, _>>()?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = addresses.iter().find(|address| !seen.insert((*address).clone())) {
            return Err(format!("{twice} is listed twice: list the AdminServer of each voter once"));
        }
        let count = addresses.len();
        if count < 3 {
            return Err(format!(
                "an ensemble of {count} has no majority left while one server is disturbed by its snapshot: turns need three or more voters"
            ));
        }
        if count.is_multiple_of(2) {
            return Err(format!(
                "{count} servers: an even number of voters bears no more failures than {}, and turns are for odd ensembles",
                count - 1
            ));
        }
        if count > MOST_SERVERS {
            return Err(format!("{count} servers are more than {MOST_SERVERS}"));
        }
        Ok(addresses)
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerAddress, String> {
        let wrong =
            || format!("'{text}' is no address of an AdminServer: write HOST:PORT, as in 10.0.0.1:8080");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        // A port has one form, so that a server that is listed twice is found.
        let port = port.parse::<u16>().ok().filter(|number| number.to_string() == port).ok_or_else(wrong)?;
        let is_name = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        };
        let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_host = match literal {
            Some(literal) => literal.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        if port == 0 || !is_host {
            return Err(wrong());
        }
        Ok(ServerAddress(text.to_owned()))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:8080", "zk-1.example:80", "[::1]:8080"] {
            assert_eq!(good.parse::<ServerAddress>().map(|a| a.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "a",
            ":1",
            "a:0",
            "a:70000",
            "a:+80",
            "a:080",
            "a b:1",
            "http://a:1",
            "[::g]:1",
            "::1:1",
            "a/b:1",
            "u@a:1",
        ] {
            assert!(bad.parse::<ServerAddress>().unwrap_err().contains("HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn an_ensemble_has_an_odd_number_of_different_servers() {
        assert_eq!(ServerAddress::parse_ensemble("a:1,b:1, c:1").unwrap().len(), 3);
        for (bad, word) in [
            ("a:1", "three or more"),
            ("a:1,b:1", "three or more"),
            ("a:1,b:1,c:1,d:1", "even number"),
            ("a:1,b:1,a:1", "twice"),
            ("a:1,,c:1", "HOST:PORT"),
        ] {
            let error = ServerAddress::parse_ensemble(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}

//! The address of a port that other processes connect to.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::value_error::ValueError;

/// A host and a port to which other processes can connect: `10.0.0.7:7000`, `[fd00::7]:7000` or `barn7.example.org:7000`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// The address in `text`.
    ///
    /// # Errors
    /// [`ValueError::Rule`]: no port, port 0, an address that means every interface (`0.0.0.0`, `[::]`), or a host that is neither an IP
    /// address nor a DNS name in lower case. Each address has one form.
    pub fn parse(text: &str) -> Result<Address, ValueError> {
        let wrong = |why: &str| ValueError::rule(format!("the address {text:?} {why}"));
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port: write HOST:PORT"))?;
        let port = port
            .parse()
            .ok()
            .filter(|port: &u16| *port > 0 && port.to_string().len() + host.len() + 1 == text.len());
        let port = port.ok_or_else(|| wrong("has no port of 1 to 65535"))?;
        let unspecified = if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        {
            let ip: Ipv6Addr =
                inside.parse().map_err(|_| wrong("has no IPv6 address between the brackets"))?;
            if ip.to_string() != inside {
                return Err(wrong(&format!("is written [{ip}]:{port}")));
            }
            ip.is_unspecified()
        } else if let Ok(ip) = host.parse::<Ipv4Addr>() {
            ip.is_unspecified()
        } else if is_dns_name(host) {
            false
        } else {
            return Err(wrong("has no host that is an IP address or a DNS name in lower case"));
        };
        if unspecified {
            return Err(wrong("means every interface of a machine: name the one that others connect to"));
        }
        Ok(Address { host: host.to_owned(), port })
    }

    /// The host: an IPv4 address, an IPv6 address in brackets, or a DNS name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// True for a DNS name in lower case whose last label is no number.
fn is_dns_name(host: &str) -> bool {
    let label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(fits)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253 && host.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_to_connect_to_and_a_port() {
        for good in ["127.0.0.1:1", "[::1]:65535", "barn-7.example.org:7000", "localhost:80"] {
            assert_eq!(Address::parse(good).unwrap().to_string(), good);
        }
        for bad in [
            "",
            "barn",
            "barn:",
            "barn:0",
            "barn:65536",
            "barn:07",
            "barn:+7",
            ":7",
            "0.0.0.0:7",
            "[::]:7",
            "::1:7",
            "[0::1]:7",
            "1.2.3:7",
            "Barn:7",
            "a..b:7",
            "-a:7",
            "a b:7",
            "999.1.1.1:7",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}

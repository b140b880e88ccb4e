//! The pages of a server that has the array: as much of HTTP as that takes.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::array::ArrayView;

use crate::exit::Failure;

/// How long the server may be silent. An order may reset every zone of a drive before it answers.
const PATIENCE: Duration = Duration::from_secs(600);
/// An answer longer than this is none of ours.
const MOST: u64 = 16 << 20;

/// A server's pages.
#[derive(Clone, Debug)]
pub struct Remote {
    host: String,
    password: Option<String>,
}

impl Remote {
    /// The server at a URL such as `http://127.0.0.1:9121`.
    pub fn new(url: &str, password_file: Option<&Path>) -> Result<Remote> {
        let wrong = || Failure::usage(format!("--url '{url}': write http://127.0.0.1:9121"));
        let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')).ok_or_else(wrong)?;
        let sound = host.rsplit_once(':').is_some_and(|(name, port)| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
            !name.is_empty() && name.bytes().all(plain) && port.parse::<u16>().is_ok()
        });
        if !sound {
            return Err(wrong());
        }
        let password = password_file.map(read_password).transpose()?;
        Ok(Remote { host: host.to_owned(), password })
    }

    /// How the array is.
    pub fn view(&self) -> Result<ArrayView> {
        self.request("GET", "/array", "")
    }

    /// Gives an order.
    pub fn order<T: DeserializeOwned>(&self, what: &str, order: &impl Serialize) -> Result<T> {
        self.request("POST", &format!("/array/{what}"), &serde_json::to_string(order)?)
    }

    fn request<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T> {
        let host = &self.host;
        let asking = || format!("asking the server at {host}");
        let address = host.to_socket_addrs().with_context(asking)?.next().with_context(asking)?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("{}: is `furrow serve` running there?", asking()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!("{method} {path} HTTP/1.0\r\nhost: {host}\r\nconnection: close\r\n");
        if let Some(password) = &self.password {
            head.push_str(&format!("authorization: Bearer {password}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).with_context(asking)?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer).with_context(asking)?;
        let (status, body) = parse(&answer).with_context(|| format!("{host} does not speak HTTP"))?;
        let said: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        if status == 200 {
            return serde_json::from_value(said)
                .with_context(|| format!("what the server at {host} answers to {path} is not understood"));
        }
        let why = said.get("error").and_then(Value::as_str);
        let why =
            why.map_or_else(|| format!("the server at {host} answers {path} with {status}"), str::to_owned);
        Err(match status {
            400 => Failure::usage(why),
            // A drive that holds data: see `server::array`.
            409 => Failure::refused(format!("{why} (--force)")),
            _ => Failure::refused(why),
        })
    }
}

fn read_password(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let password = text.lines().next().unwrap_or_default().to_owned();
    ensure!(!password.is_empty(), "the first line of {} is empty: the password goes there", file.display());
    Ok(password)
}

/// The status and the body.
fn parse(answer: &[u8]) -> Option<(u16, &str)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_scheme_address_and_port() {
        for url in ["http://127.0.0.1:9121", "http://localhost:9121/", "http://[::1]:80"] {
            assert!(Remote::new(url, None).is_ok(), "{url}");
        }
        for url in
            ["127.0.0.1:9121", "https://127.0.0.1:9121", "http://127.0.0.1", "http://a\r\nb:1", "http://:1"]
        {
            let error = Remote::new(url, None).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:9121"), "{error}");
        }
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(parse(b"HTTP/1.0 404 Not Found\r\na: b\r\n\r\n{}\n"), Some((404, "{}\n")));
        assert_eq!(parse(b"+PONG\r\n"), None);
        assert_eq!(parse(b""), None);
    }
}

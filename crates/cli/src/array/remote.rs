//! The client of a server's `/array` pages, over HTTP.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::array::ArrayView;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use crate::exit::Failure;

/// The longest time that a request to a server may take: an order may reset every zone of a drive before the server answers.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest answer of a server that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// A server that holds an array.
#[derive(Clone, Debug)]
pub struct Remote {
    agent: Agent,
    /// The host and port of the server's pages: `127.0.0.1:9121`
    host: String,
    password: Option<String>,
}

impl Remote {
    /// The server whose pages have a URL such as `http://127.0.0.1:9121`.
    ///
    /// # Errors
    ///
    /// A usage error for any other kind of URL; those of the password file.
    pub fn new(url: &str, password_file: Option<&Path>) -> Result<Remote> {
        let parsed = url.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http")
                && uri.port_u16().is_some()
                && uri.path_and_query().is_none_or(|p| p == "/")
        });
        let host = parsed.as_ref().and_then(Uri::authority).filter(|host| !host.host().is_empty());
        let Some(host) = host.filter(|host| !host.as_str().contains('@')) else {
            return Err(Failure::usage(format!(
                "--url '{url}' is not a server's pages: the scheme is http, and host and port are given, as in \
                 http://127.0.0.1:9121"
            )));
        };
        let password = password_file.map(read_password).transpose()?;
        let agent = Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The server's pages are on this machine, whatever proxy the environment names.
            .proxy(None)
            .build();
        Ok(Remote { agent: agent.into(), host: host.to_string(), password })
    }

    /// The status of the server's array.
    pub fn view(&self) -> Result<ArrayView> {
        let request = self.agent.get(self.page("/array"));
        let request = match &self.password {
            Some(password) => request.header("authorization", format!("Bearer {password}")),
            None => request,
        };
        self.answer("/array", request.call())
    }

    /// Gives the server's array the order `verb`, with its settings.
    pub fn order<T: DeserializeOwned>(&self, verb: &str, settings: &impl Serialize) -> Result<T> {
        let path = format!("/array/{verb}");
        let request = self.agent.post(self.page(&path)).header("content-type", "application/json");
        let request = match &self.password {
            Some(password) => request.header("authorization", format!("Bearer {password}")),
            None => request,
        };
        self.answer(&path, request.send(serde_json::to_string(settings)?))
    }

    fn page(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        path: &str,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<T> {
        let host = &self.host;
        let asking = || format!("asking the server at {host}; is `furrow serve` running there?");
        let mut response = response.with_context(asking)?;
        let status = response.status().as_u16();
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .read_to_string()
            .with_context(asking)?;
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status == 200 {
            return serde_json::from_value(body)
                .with_context(|| format!("reading the answer of the server at {host} to {path}"));
        }
        let why = body
            .get("error")
            .and_then(Value::as_str)
            .map_or_else(|| format!("the server at {host} answers {path} with {status}"), str::to_owned);
        Err(match status {
            400 => Failure::usage(why),
            // The server refused because the new drive holds data.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_scheme_address_and_port() {
        for url in ["http://127.0.0.1:9121", "http://localhost:9121/", "http://[::1]:80"] {
            assert!(Remote::new(url, None).is_ok(), "{url}");
        }
        for url in [
            "127.0.0.1:9121",
            "https://127.0.0.1:9121",
            "http://127.0.0.1",
            "http://a\r\nb:1",
            "http://:1",
            "http://me@127.0.0.1:9121",
            "http://127.0.0.1:9121/array",
        ] {
            let error = Remote::new(url, None).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:9121"), "{error}");
        }
    }
}

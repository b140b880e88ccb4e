//! Checks who gives an order to the array over HTTP: programs on this machine may, web pages may not.
//!
//! Any page that a browser on this machine shows can have the browser send requests to this port. Such a request has an
//! `Origin`, cannot have JSON as its content type without a preflight request, and after DNS rebinding has a foreign
//! name as its `Host`. Each of the three alone suffices to refuse the request.
//!
//! The server's password keeps out other users of the machine. A server without a password asks the kernel which user
//! owns the connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::peer;
use crate::array::OpenArray;
use crate::shared::Shared;

/// The process that has an array open, as the routes of the array see it.
pub(super) trait ArrayHolder: Clone + Send + Sync + 'static {
    /// The array, if the process has one open.
    fn array(&self) -> Option<&OpenArray>;

    /// True if orders have to bring a password.
    fn has_password(&self) -> bool;

    /// Whether `given` is the password.
    fn is_password(&self, given: &[u8]) -> bool;
}

impl ArrayHolder for Arc<Shared> {
    fn array(&self) -> Option<&OpenArray> {
        self.backing.array.as_ref()
    }

    fn has_password(&self) -> bool {
        self.password.is_some()
    }

    fn is_password(&self, given: &[u8]) -> bool {
        Shared::is_password(self, given)
    }
}

/// An array that a process without other pages has open: only its own user and root may give orders.
impl ArrayHolder for Arc<OpenArray> {
    fn array(&self) -> Option<&OpenArray> {
        Some(self)
    }

    fn has_password(&self) -> bool {
        false
    }

    fn is_password(&self, _: &[u8]) -> bool {
        false
    }
}

/// The body of an order to the array, from a client that may give orders.
pub(super) struct Order<T>(pub T);

/// The HTTP status and the text of a refused request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal(pub StatusCode, pub String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(status, why) = self;
        (status, [(header::CONTENT_TYPE, "application/json")], format!("{}\n", json!({ "error": why })))
            .into_response()
    }
}

impl<T: DeserializeOwned, H: ArrayHolder> FromRequest<H> for Order<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, holder: &H) -> Result<Order<T>, Refusal> {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer);
        check_client(peer, request.headers(), holder)?;
        if !holder.has_password() {
            let asked = tokio::task::spawn_blocking(move || {
                peer::may_order(peer.and_then(peer::socket_owner), peer::own_user())
            });
            if !asked.await.unwrap_or(false) {
                let why = "without a password only the server's own user, and root, may give orders: give \
                           --password-file to furrow serve";
                return Err(Refusal(StatusCode::FORBIDDEN, why.to_owned()));
            }
        }
        let wrong = |why: String| Refusal(StatusCode::BAD_REQUEST, why);
        let body = Bytes::from_request(request, holder).await.map_err(|error| wrong(error.to_string()))?;
        serde_json::from_slice(&body).map(Order).map_err(|error| wrong(format!("the order: {error}")))
    }
}

/// Checks that `peer` may give an order with the request's `headers`.
fn check_client(
    peer: Option<SocketAddr>,
    headers: &HeaderMap,
    holder: &impl ArrayHolder,
) -> Result<(), Refusal> {
    check_origin(peer, headers)?;
    let given =
        header_text(headers, header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    if holder.has_password() && !given.is_some_and(|given| holder.is_password(given.as_bytes())) {
        let why = "the server asks for its password: furrow array ... --password-file FILE";
        return Err(Refusal(StatusCode::UNAUTHORIZED, why.to_owned()));
    }
    Ok(())
}

/// All checks of an order but that of the password.
fn check_origin(peer: Option<SocketAddr>, headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal(StatusCode::FORBIDDEN, why.to_owned()));
    if !peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
        return refuse("orders are taken from this machine only: give them there");
    }
    let site = header_text(headers, "sec-fetch-site");
    if headers.contains_key(header::ORIGIN) || site.is_some_and(|site| site != "none") {
        return refuse("this order comes from a web page: use furrow array");
    }
    if !header_text(headers, header::HOST.as_str()).is_some_and(is_this_machine) {
        return refuse("name this machine by its loopback address, as in http://127.0.0.1:9121");
    }
    let kind = header_text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let why = "an order is JSON: content-type: application/json";
        return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
    }
    Ok(())
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the value of a `Host` header is a loopback address.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(more: &[(&'static str, &'static str)]) -> HeaderMap {
        let base = [("host", "127.0.0.1:9121"), ("content-type", "application/json")];
        let mut headers = HeaderMap::new();
        for (name, value) in base.iter().chain(more) {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_programs_of_this_machine_may_give_orders() {
        let here = Some(SocketAddr::from(([127, 0, 0, 1], 4000)));
        assert_eq!(check_origin(here, &headers(&[])), Ok(()));
        assert_eq!(check_origin(here, &headers(&[("sec-fetch-site", "none")])), Ok(()));
        assert!(check_origin(Some(SocketAddr::from(([10, 0, 0, 1], 4000))), &headers(&[])).is_err());
        assert!(check_origin(None, &headers(&[])).is_err());
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-origin"),
            ("host", "evil.example:9121"),
            ("content-type", "text/plain"),
            ("content-type", "application/x-www-form-urlencoded"),
        ] {
            assert!(check_origin(here, &headers(&[(name, value)])).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn only_loopback_names_are_this_machine() {
        for host in ["127.0.0.1:9121", "127.0.0.1", "localhost:9121", "LOCALHOST", "[::1]:9121", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["", "evil.example:9121", "10.0.0.1:9121", "127.0.0.1.evil.example", "localhost.evil.example:1"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}

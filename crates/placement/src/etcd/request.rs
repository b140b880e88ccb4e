//! A request to etcd: bounded in time, with errors that say whether to wait.

use std::time::Duration;

use etcd_client::Error as ClientError;

use crate::error::Error;
use crate::value_error::quoted;

/// Codes of gRPC after which a later request may succeed.
const RETRY_CODES: [i32; 7] = [
    1,  // cancelled
    2,  // unknown: the connection broke
    4,  // deadline exceeded
    8,  // resource exhausted
    10, // aborted
    13, // internal
    14, // unavailable, also without a leader
];

/// Waits for etcd's answer to a request, for `timeout` at most.
pub(super) async fn bounded<T>(
    doing: &'static str,
    timeout: Duration,
    request: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(convert(doing, &error)),
        Err(_) => Err(Error::Unreachable { doing, why: format!("no answer within {timeout:?}") }),
    }
}

fn convert(doing: &'static str, error: &ClientError) -> Error {
    let (retry, why) = match error {
        ClientError::GRpcStatus(status) => {
            (RETRY_CODES.contains(&(status.code() as i32)), status.message().to_owned())
        }
        ClientError::IoError(_)
        | ClientError::TransportError(_)
        | ClientError::WatchError(_)
        | ClientError::LeaseKeepAliveError(_)
        | ClientError::Internal(_) => (true, error.to_string()),
        _ => (false, error.to_string()),
    };
    let why = quoted(&why);
    if retry { Error::Unreachable { doing, why } } else { Error::Refused { doing, why } }
}

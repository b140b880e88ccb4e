//! `/array`: how it is; below it orders, which only programs of this machine may give.

use std::sync::Arc;

use array::Slot;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zoned::{Error, ErrorKind};

use super::guard::{Order, Refusal};
use super::held::{Held, Job};
use crate::shared::Shared;

/// `POST /array/fail`: the array does without a drive from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailOrder {
    /// Which drive.
    pub slot: u32,
}

/// `POST /array/replace`: a new drive in the place of one that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceOrder {
    /// Which drive is replaced.
    pub slot: u32,
    /// The new drive's URL. A path in it is one of the server's.
    pub device: String,
    /// Although it holds data.
    #[serde(default)]
    pub force: bool,
    /// Only look.
    #[serde(default)]
    pub dry_run: bool,
    /// Bytes a second that the rebuild never exceeds.
    #[serde(default)]
    pub max_rate: Option<u64>,
}

/// `POST /array/scrub`: all parity is compared with its data.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubOrder {
    /// Make parity fit its data where it does not.
    pub repair_parity: bool,
}

/// An order without settings: `{}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {}

/// The routes.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/array", get(show))
        .route("/array/fail", post(fail))
        .route("/array/replace", post(replace))
        .route("/array/scrub", post(scrub))
        .route("/array/cancel-rebuild", post(cancel_rebuild))
        .route("/array/cancel-scrub", post(cancel_scrub))
}

type Shares = State<Arc<Shared>>;

async fn show(State(shared): Shares) -> Result<Response, Refusal> {
    on_array(shared, |array| Ok(viewed(array))).await
}

async fn fail(State(shared): Shares, Order(order): Order<FailOrder>) -> Result<Response, Refusal> {
    on_array(shared, move |array| {
        tracing::warn!(slot = order.slot, "a drive is failed by an order");
        array.fail(Slot(order.slot))?;
        Ok(viewed(array))
    })
    .await
}

async fn replace(State(shared): Shares, Order(order): Order<ReplaceOrder>) -> Result<Response, Refusal> {
    on_array(shared, move |array| {
        let drive = array.replace(&order)?;
        if !order.dry_run {
            tracing::info!(slot = order.slot, drive, "a drive is replaced by an order");
        }
        Ok(json!({ "drive": drive, "array": array.view() }))
    })
    .await
}

async fn scrub(State(shared): Shares, Order(order): Order<ScrubOrder>) -> Result<Response, Refusal> {
    on_array(shared, move |array| {
        array.scrub(order.repair_parity)?;
        Ok(viewed(array))
    })
    .await
}

async fn cancel_rebuild(State(shared): Shares, Order(_): Order<Plain>) -> Result<Response, Refusal> {
    on_array(shared, |array| Ok(json!({ "cancelled": array.cancel(Job::Rebuild) }))).await
}

async fn cancel_scrub(State(shared): Shares, Order(_): Order<Plain>) -> Result<Response, Refusal> {
    on_array(shared, |array| Ok(json!({ "cancelled": array.cancel(Job::Scrub) }))).await
}

fn viewed(array: &Held) -> Value {
    json!(array.view())
}

/// Does something with the array on a thread that may wait for the drives.
async fn on_array(
    shared: Arc<Shared>,
    what: impl FnOnce(&Held) -> Result<Value, Error> + Send + 'static,
) -> Result<Response, Refusal> {
    let work = move || match &shared.array {
        Some(array) => what(array).map_err(|error| Refusal(status(error.kind()), error.to_string())),
        None => Err(Refusal(StatusCode::NOT_FOUND, "the server's data lies on no array".to_owned())),
    };
    let done = tokio::task::spawn_blocking(work).await;
    let value = done.map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    Ok(([(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response())
}

fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        // And nothing else is: whoever gives the order may force it.
        ErrorKind::HoldsData => StatusCode::CONFLICT,
        ErrorKind::Held { .. } | ErrorKind::InUse => StatusCode::LOCKED,
        ErrorKind::Invalid | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

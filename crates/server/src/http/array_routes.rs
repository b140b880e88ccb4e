//! The HTTP routes of the array: `GET /array` shows the array; the routes under `/array/` take orders, from programs of
//! this machine only.

use array::Slot;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use zoned::{Error, ErrorKind};

use super::guard::{ArrayHolder, Order, Refusal};
use crate::array::{
    AddSpareOrder, FailOrder, Job, OpenArray, ReclaimOrder, RemoveSpareOrder, ReplaceOrder, ScrubOrder,
};

/// The body of an order without settings: `{}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyOrder {}

/// The HTTP routes of the array.
pub(super) fn routes<H: ArrayHolder>() -> Router<H> {
    Router::new()
        .route("/array", get(get_array::<H>))
        .route("/array/fail", post(post_fail::<H>))
        .route("/array/replace", post(post_replace::<H>))
        .route("/array/add-spare", post(post_add_spare::<H>))
        .route("/array/remove-spare", post(post_remove_spare::<H>))
        .route("/array/scrub", post(post_scrub::<H>))
        .route("/array/reclaim", post(post_reclaim::<H>))
        .route("/array/cancel-rebuild", post(cancel_rebuild::<H>))
        .route("/array/cancel-scrub", post(cancel_scrub::<H>))
}

async fn get_array<H: ArrayHolder>(State(holder): State<H>) -> Result<Response, Refusal> {
    on_array(holder, |array| Ok(array_json(array))).await
}

async fn post_fail<H: ArrayHolder>(
    State(holder): State<H>,
    Order(order): Order<FailOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, move |array| {
        tracing::warn!(slot = order.slot, "a drive is failed by an order");
        array.fail(Slot(order.slot))?;
        Ok(array_json(array))
    })
    .await
}

async fn post_replace<H: ArrayHolder>(
    State(holder): State<H>,
    Order(order): Order<ReplaceOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, move |array| {
        let drive = array.replace(&order)?;
        if !order.dry_run {
            tracing::info!(slot = order.slot, drive, "a drive is replaced by an order");
        }
        Ok(json!({ "drive": drive, "array": array.view() }))
    })
    .await
}

async fn post_add_spare<H: ArrayHolder>(
    State(holder): State<H>,
    Order(order): Order<AddSpareOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, move |array| {
        let drive = array.add_spare(&order)?;
        if !order.dry_run {
            tracing::info!(drive, "a spare is added by an order");
        }
        Ok(json!({ "drive": drive, "array": array.view() }))
    })
    .await
}

async fn post_remove_spare<H: ArrayHolder>(
    State(holder): State<H>,
    Order(order): Order<RemoveSpareOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, move |array| {
        array.remove_spare(&order)?;
        tracing::info!(spare = order.spare, "a spare is removed by an order");
        Ok(array_json(array))
    })
    .await
}

async fn post_scrub<H: ArrayHolder>(
    State(holder): State<H>,
    Order(order): Order<ScrubOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, move |array| {
        array.scrub(order.repair_parity)?;
        Ok(array_json(array))
    })
    .await
}

async fn post_reclaim<H: ArrayHolder>(
    State(holder): State<H>,
    Order(order): Order<ReclaimOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, move |array| {
        array.reclaim(order.empty)?;
        Ok(array_json(array))
    })
    .await
}

async fn cancel_rebuild<H: ArrayHolder>(
    State(holder): State<H>,
    Order(_): Order<EmptyOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, |array| Ok(json!({ "cancelled": array.cancel(Job::Rebuild) }))).await
}

async fn cancel_scrub<H: ArrayHolder>(
    State(holder): State<H>,
    Order(_): Order<EmptyOrder>,
) -> Result<Response, Refusal> {
    on_array(holder, |array| Ok(json!({ "cancelled": array.cancel(Job::Scrub) }))).await
}

fn array_json(array: &OpenArray) -> Value {
    json!(array.view())
}

/// Calls `what` with the array, on a thread that may wait for the drives.
async fn on_array<H: ArrayHolder>(
    holder: H,
    what: impl FnOnce(&OpenArray) -> Result<Value, Error> + Send + 'static,
) -> Result<Response, Refusal> {
    let work = move || match holder.array() {
        Some(array) => what(array).map_err(|error| Refusal(status_code(error.kind()), error.to_string())),
        None => Err(Refusal(StatusCode::NOT_FOUND, "the server's data lies on no array".to_owned())),
    };
    let done = tokio::task::spawn_blocking(work).await;
    let value = done.map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    Ok(([(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response())
}

fn status_code(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        // Only this error has the status 409: a client that gets 409 may repeat the order with `force`.
        ErrorKind::HoldsData => StatusCode::CONFLICT,
        ErrorKind::Held { .. } | ErrorKind::InUse => StatusCode::LOCKED,
        ErrorKind::Invalid | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

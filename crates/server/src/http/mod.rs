//! The HTTP port: metrics, health, and a plain page of the server's state.

mod array_pages;
mod array_routes;
mod array_table;
mod groups_table;
mod guard;
mod html;
mod peer;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::commands::info_text;
use crate::metrics;
use crate::shared::Shared;

pub use array_pages::ArrayPages;
use html::escape;

/// Serves the HTTP port until the server stops.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let router = Router::new()
        .route("/", get(status_page))
        .route("/metrics", get(get_metrics))
        .route("/healthz", get(get_health))
        .merge(array_routes::routes())
        .with_state(shared)
        .into_make_service_with_connect_info::<SocketAddr>();
    let stop = async move {
        // The wait ends when the value becomes true: the sender lives in `shared`.
        let _sender_gone = stopping.wait_for(|stopping| *stopping).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
        tracing::error!(%error, "the HTTP port failed");
    }
}

/// `GET /metrics`: the metrics in the format that the client accepts, rendered on a thread that may wait for the
/// device.
async fn get_metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, StatusCode> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = metrics::Format::of_accept(accept);
    let text = tokio::task::spawn_blocking(move || metrics::render(&shared, format)).await;
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")], text).into_response())
}

/// `GET /health`: status 200 while the server takes writes.
async fn get_health(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let full = shared.engines.room().is_some_and(|room| room.is_short());
    match shared.engines.failure() {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        None if full => (StatusCode::SERVICE_UNAVAILABLE, "the drive is full\n".into()),
        None => (StatusCode::OK, "ok\n".into()),
    }
}

async fn status_page(State(shared): State<Arc<Shared>>) -> Html<String> {
    let mut rows = String::new();
    for line in info_text(&shared, |section| section != "replication").lines() {
        let row = match (line.strip_prefix("# "), line.split_once(':')) {
            (Some(title), _) => format!("<tr><th colspan=2>{}</th></tr>\n", escape(title)),
            (None, Some((name, value))) => {
                let name = escape(&name.replace('_', " "));
                format!("<tr><td>{name}</td><td>{}</td></tr>\n", escape(value))
            }
            (None, None) => continue,
        };
        rows.push_str(&row);
    }
    let device = escape(&shared.options.device);
    let array =
        shared.backing.array.as_ref().map_or(String::new(), |array| array_table::array_table(&array.view()));
    let groups = shared
        .engines
        .cluster()
        .map_or(String::new(), |cluster| groups_table::groups_table(&cluster.topology(), &cluster.stats()));
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Furrow</title><meta http-equiv=refresh content=5>\n\
         <style>body{{font:15px/1.5 sans-serif;margin:2em;max-width:60em}}th{{text-align:left;padding-top:1em}}\
         td{{padding-right:2em;font-variant-numeric:tabular-nums;vertical-align:top}}</style>\n\
         <h1>Furrow</h1><p>Key-value server on <code>{device}</code>, port {}. Metrics: <a href=/metrics>/metrics</a>.</p>\n\
         {groups}{array}<table>\n{rows}</table></html>\n",
        shared.port
    ))
}

//! The HTTP port: metrics, health, and a plain page of the server's state.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::array;
use crate::local::info_text;
use crate::shared::Shared;

/// Serves until the server stops.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let router = Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .merge(array::routes())
        .with_state(shared)
        .into_make_service_with_connect_info::<SocketAddr>();
    let stop = async move {
        // The sender lives in `shared`: this ends by the value.
        let _sender_gone = stopping.wait_for(|stopping| *stopping).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
        tracing::error!(%error, "the HTTP port failed");
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shared.metrics.render(&shared))
}

/// Healthy is: writes are taken.
async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let full = shared.engine.room().is_some_and(|room| room.is_short());
    match shared.engine.failure() {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        None if full => (StatusCode::SERVICE_UNAVAILABLE, "the drive is full\n".into()),
        None => (StatusCode::OK, "ok\n".into()),
    }
}

async fn page(State(shared): State<Arc<Shared>>) -> Html<String> {
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
    let array = shared.array.as_ref().map_or(String::new(), |array| array::table(&array.view()));
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Furrow</title><meta http-equiv=refresh content=5>\n\
         <style>body{{font:15px/1.5 sans-serif;margin:2em;max-width:60em}}th{{text-align:left;padding-top:1em}}\
         td{{padding-right:2em;font-variant-numeric:tabular-nums;vertical-align:top}}</style>\n\
         <h1>Furrow</h1><p>Key-value server on <code>{device}</code>, port {}. Metrics: <a href=/metrics>/metrics</a>.</p>\n\
         {array}<table>\n{rows}</table></html>\n",
        shared.port
    ))
}

/// The text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

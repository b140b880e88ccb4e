//! The pages of an array for a process that has no other pages.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::runtime::Runtime;

use super::array_routes;
use crate::array::OpenArray;

/// The pages `/array` and below of an array that this process has open, served until they are dropped. `furrow array ...
/// --url` speaks to them. Orders are taken from programs of this machine that run as this process's user, or as root.
#[derive(Debug)]
pub struct ArrayPages {
    address: SocketAddr,
    /// Owns the thread that serves the pages.
    runtime: Option<Runtime>,
}

impl ArrayPages {
    /// Serves the pages of `array` on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The host's, if the address cannot be listened on or no thread can be started.
    pub fn serve(address: SocketAddr, array: OpenArray) -> io::Result<ArrayPages> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("furrow-http").enable_all().build()?;
        let router = Router::new()
            .merge(array_routes::routes())
            .with_state(Arc::new(array))
            .into_make_service_with_connect_info::<SocketAddr>();
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the HTTP port failed");
            }
        });
        Ok(ArrayPages { address, runtime: Some(runtime) })
    }

    /// The address of the pages.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ArrayPages {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // An order that waits for a drive does not hold up the process's end.
            runtime.shutdown_background();
        }
    }
}

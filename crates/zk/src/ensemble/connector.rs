//! Connections whose errors are told from errors after the request was sent.

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, TcpConnector};

/// An error of resolving the host's name or of connecting: nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConnectError(pub ureq::Error);

/// Connects by TCP. Each of its errors is a [`ConnectError`] within [`ureq::Error::Other`].
#[derive(Debug, Default)]
pub(super) struct MarkingConnector(TcpConnector);

impl Connector for MarkingConnector {
    type Out = <TcpConnector as Connector>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        self.0.connect(details, chained).map_err(marked)
    }
}

/// Resolves the host's name as the operating system does. Each of its errors is marked as those of [`MarkingConnector`].
#[derive(Debug, Default)]
pub(super) struct MarkingResolver(DefaultResolver);

impl Resolver for MarkingResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        self.0.resolve(uri, config, timeout).map_err(marked)
    }
}

fn marked(error: ureq::Error) -> ureq::Error {
    ureq::Error::Other(Box::new(ConnectError(error)))
}

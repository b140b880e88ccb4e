//! The settings of sockets.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// The time after which a connection ends whose bytes are not acknowledged, or whose other side is silent. The kernel's own times are minutes: messages would wait for a retransmission long after a network is whole again.
const DEAD_AFTER: Duration = Duration::from_secs(5);
/// A silent side is asked for a sign of life after this time, and so often.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Sets a connection's options: no delay of small segments, and bounded times until a dead one ends.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

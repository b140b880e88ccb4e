//! The user at the other end of a connection from this machine, found in the kernel's table of TCP sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

/// The kernel's code for a connection with both ends open. In other states the table names root for sockets without an
/// owner.
const ESTABLISHED_STATE: &str = "01";

/// The user who owns the socket with the address `of`, if exactly one user does.
pub(super) fn socket_owner(of: SocketAddr) -> Option<u32> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let text: String = tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).collect();
    socket_owner_in(&text, of)
}

/// The user that this process runs as.
pub(super) fn own_user() -> Option<u32> {
    std::fs::metadata("/proc/self").ok().map(|own| own.uid())
}

/// Whether `user` may give orders to a server that runs as `own`: only the same user and root may.
pub(super) fn may_order(user: Option<u32>, own: Option<u32>) -> bool {
    user.is_some() && (user == own || user == Some(0))
}

fn socket_owner_in(table: &str, of: SocketAddr) -> Option<u32> {
    let mut owners = table
        .lines()
        .filter_map(parse_socket_line)
        .filter(|(at, _)| *at == to_plain_ipv4(of))
        .map(|(_, user)| user);
    let first = owners.next()?;
    owners.all(|other| other == first).then_some(first)
}

/// The address and the user in a line of the kernel's socket table, if the connection is open.
fn parse_socket_line(line: &str) -> Option<(SocketAddr, u32)> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let user = fields.nth(3)?.parse().ok()?;
    (state == ESTABLISHED_STATE).then_some((parse_socket_address(local)?, user))
}

/// Parses an address of the kernel's socket table: `0100007F:A3C1` is the IP address in words of the machine's byte
/// order, and the port.
fn parse_socket_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, place) in (0..).step_by(8).zip(bytes.chunks_mut(4)) {
                place.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(to_plain_ipv4(SocketAddr::new(ip, port)))
}

fn to_plain_ipv4(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_owner_of_a_connection_is_read_from_the_table() {
        let line = |at: &str, state: &str, user: u32| {
            format!(
                "   0: {at} 0100007F:23A1 {state} 00000000:00000000 00:00000000 00000000  {user}        0 77 1\n"
            )
        };
        let here = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        // The table's words are in the machine's byte order; this branch is for little-endian ones.
        let at = |port: u16| match cfg!(target_endian = "little") {
            true => format!("0100007F:{port:04X}"),
            false => format!("7F000001:{port:04X}"),
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let table = [
            head.to_owned(),
            line(&at(4000), "01", 1000),
            line(&at(4001), "06", 0),
            line(&at(4002), "01", 1000),
            line(&at(4002), "01", 1001),
        ]
        .concat();
        assert_eq!(socket_owner_in(&table, here(4000)), Some(1000));
        assert_eq!(socket_owner_in(&table, here(4001)), None, "closed: the table gives root");
        assert_eq!(socket_owner_in(&table, here(4002)), None, "two users: no owner");
        assert_eq!(socket_owner_in(&table, here(4003)), None);
        let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), 4000);
        assert_eq!(socket_owner_in(&table, mapped), Some(1000));
    }

    #[test]
    fn a_connection_of_this_process_belongs_to_its_user() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            // Skip an address family that the machine lacks, such as IPv6.
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (_there, peer) = listener.accept().unwrap();
            assert_eq!(socket_owner(peer), own_user());
            assert!(socket_owner(peer).is_some());
            drop(stream);
        }
    }

    #[test]
    fn only_the_servers_user_and_root_may_give_orders() {
        assert!(may_order(Some(1000), Some(1000)) && may_order(Some(0), Some(1000)));
        assert!(!may_order(Some(1001), Some(1000)) && !may_order(None, Some(1000)) && !may_order(None, None));
        assert!(!may_order(Some(1001), None));
    }
}

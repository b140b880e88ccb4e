//! The loopback interface, which a kernel starts with down.

use anyhow::{Context, Result, ensure};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Sets the loopback interface up, which also adds 127.0.0.1.
pub fn loopback_up() -> Result<()> {
    // Netlink protocol 0 (NETLINK_ROUTE) is the one for interfaces.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .context("cannot open a netlink socket")?;
    let message = set_up();
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
        .context("cannot send to the kernel's network")?;
    let mut answer = [0; 256];
    let (count, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // The netlink reply: a header of 16 bytes, then the error number, 0 for success.
    let code = answer.get(..count).and_then(|answer| answer.get(16..20));
    ensure!(code == Some(&[0; 4]), "the kernel refuses to set the loopback interface up: {code:?}");
    Ok(())
}

/// The netlink request (rtnetlink(7)): set the flag UP of interface 1.
fn set_up() -> Vec<u8> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const LOOPBACK: u32 = 1;
    const UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    message.extend([0; 8]); // sequence, port
    message.extend([0; 4]); // family, padding, type
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes()); // which flags change
    message
}

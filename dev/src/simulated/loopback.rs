//! The network of a sandbox: loopback, up, with the pod's address on it.
//!
//! Two messages to the kernel, since a command for each would cost more than all the rest of a sandbox.

use std::io;
use std::net::Ipv4Addr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Loopback is the first device of every network namespace.
const LOOPBACK: u32 = 1;
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const REQUEST_AND_CONFIRM: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400;
const UP: u32 = 1;
const HEADER: usize = 16;
/// The attributes that an address stands in: whose it is, and what is at the other end, which is the same.
const ATTRIBUTES: [u16; 2] = [1, 2];

/// Sets up the network namespace of the calling thread.
///
/// # Errors
/// What the kernel says.
pub(super) fn set_up(address: Ipv4Addr) -> io::Result<()> {
    // Routes and devices are the family's first protocol, which is what none means.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    for message in [link_up(), new_address(address)] {
        send(&socket, &message, SendFlags::empty())?;
        let mut answer = [0_u8; 1024];
        let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
        confirm(&answer[..length])?;
    }
    Ok(())
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut text = Vec::with_capacity(HEADER + body.len());
    text.extend(length.to_ne_bytes());
    text.extend(kind.to_ne_bytes());
    text.extend(flags.to_ne_bytes());
    // Number and sender: one message at a time, from us.
    text.extend([0; 8]);
    text.extend(body);
    text
}

fn link_up() -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    // The flags, and which of them are meant.
    body.extend(UP.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    message(NEW_LINK, REQUEST_AND_CONFIRM, &body)
}

fn new_address(address: Ipv4Addr) -> Vec<u8> {
    // Version 4, a network of one, no flags, known everywhere.
    let mut body = vec![2, 32, 0, 0];
    body.extend(LOOPBACK.to_ne_bytes());
    for kind in ATTRIBUTES {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(address.octets());
    }
    message(NEW_ADDRESS, REQUEST_AND_CONFIRM | CREATE, &body)
}

/// A confirmation is an error message whose error is 0.
fn confirm(answer: &[u8]) -> io::Result<()> {
    let number = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok());
    match number.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel gave no answer")),
    }
}

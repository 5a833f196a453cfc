//! Answers each datagram with itself: the smallest server that a host port can be tried with.

use std::net::UdpSocket;

fn main() -> std::io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:7654")?;
    let mut buffer = [0; 1500];
    loop {
        let (length, sender) = socket.recv_from(&mut buffer)?;
        socket.send_to(&buffer[..length], sender)?;
    }
}

//! The two ways to talk to the game: one datagram, one answer; one line, one answer.
//!
//! An echo is answered on the spot. A command may wait for the SDK server, so it runs beside the others, and the number
//! of those is limited.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinError, JoinSet};

use crate::game::{Answer, Ending, Game, answer_at_once};

/// The largest UDP payload.
const DATAGRAM: usize = 65_535;
/// The longest line.
const LINE: u64 = 64 * 1024;
/// UDP commands that may wait for the SDK server at once; more are told to come back.
const COMMANDS: usize = 64;
/// TCP connections at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 256;
/// How long a TCP connection may say nothing.
const IDLE: Duration = Duration::from_secs(300);
/// How long to wait when the kernel cannot accept, which is out of descriptors most of the time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Answers datagrams until a command ends the game.
pub(crate) async fn udp(socket: UdpSocket, game: Arc<Game>) -> io::Result<Ending> {
    let socket = Arc::new(socket);
    let mut commands = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        tokio::select! {
            biased;
            // What is done comes first, so that EXIT ends the game under any flood.
            Some(done) = commands.join_next() => if let Some(ending) = ending_of(done) {
                return Ok(ending);
            },
            received = socket.recv_from(&mut buffer) => {
                let Some((length, peer)) = usable(received)? else { continue };
                let line = text(&buffer[..length]);
                match answer_at_once(&line) {
                    Ok(answer) => send(&socket, &answer, peer).await,
                    Err(_) if commands.len() >= COMMANDS => {
                        send(&socket, &Answer::error("busy, try again"), peer).await;
                    }
                    Err(command) => {
                        let (socket, game) = (Arc::clone(&socket), Arc::clone(&game));
                        commands.spawn(async move {
                            let answer = game.obey(&line, command).await;
                            send(&socket, &answer, peer).await;
                            answer.then
                        });
                    }
                }
            }
        }
    }
}

/// An earlier answer that nobody took comes back as an error of the next receive; it is no reason to end.
fn usable(received: io::Result<(usize, SocketAddr)>) -> io::Result<Option<(usize, SocketAddr)>> {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
    };
    match received {
        Ok(received) => Ok(Some(received)),
        Err(error)
            if matches!(
                error.kind(),
                ConnectionRefused | ConnectionReset | HostUnreachable | Interrupted | NetworkUnreachable
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn send(socket: &UdpSocket, answer: &Answer, peer: SocketAddr) {
    if let Err(error) = socket.send_to(answer.text.as_bytes(), peer).await {
        println!("answer not sent peer={peer} error={error}");
    }
}

/// Answers lines until a command ends the game.
pub(crate) async fn tcp(listener: TcpListener, game: Arc<Game>) -> io::Result<Ending> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // As with UDP: an end comes before more work.
            Some(done) = connections.join_next() => if let Some(ending) = ending_of(done) {
                return Ok(ending);
            },
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let game = Arc::clone(&game);
                    connections.spawn(async move {
                        converse(stream, &game).await.unwrap_or_else(|error| {
                            println!("connection ended peer={peer} error={error}");
                            None
                        })
                    });
                }
                Err(error) => {
                    println!("connection not accepted error={error}");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
}

async fn converse(stream: TcpStream, game: &Game) -> io::Result<Option<Ending>> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(LINE);
        let read = limited.read_until(b'\n', &mut line);
        let Ok(length) = tokio::time::timeout(IDLE, read).await else { return Ok(None) };
        if length? == 0 {
            return Ok(None);
        }
        if line.len() as u64 == LINE && !line.ends_with(b"\n") {
            writer.write_all(Answer::error("line too long").text.as_bytes()).await?;
            return Ok(None);
        }
        let answer = game.answer(&text(&line)).await;
        let sent = writer.write_all(answer.text.as_bytes()).await;
        // The end was asked for, whether or not the one who asked still listens.
        if answer.then.is_some() {
            return Ok(answer.then);
        }
        sent?;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn ending_of(done: Result<Option<Ending>, JoinError>) -> Option<Ending> {
    done.unwrap_or_else(|error| {
        println!("command lost error={error}");
        None
    })
}
